"""Studies: grids of runs over settings and seeds, and what they come to in tables and curves."""

ROOT = "studies"  # where runs and reports lie if nothing else is said
