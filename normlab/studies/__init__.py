"""Studies (grids of runs that fill comparison tables): how they are tuned, run and published."""
