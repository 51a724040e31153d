"""Studies: tune, run and publish grids of runs that fill comparison tables."""
