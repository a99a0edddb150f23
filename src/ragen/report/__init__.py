"""The report of runs: one HTML page with summary, curves and rollout viewer, as a file or served while a run goes on."""
