"""Run directory, recorded events, checkpoints' commit, console and trajectory view."""
