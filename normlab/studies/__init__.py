"""Studies, which are grids of runs that fill comparison tables: tuning, running, publishing."""
