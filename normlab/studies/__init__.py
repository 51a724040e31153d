"""Studies: grids of runs that reproduce comparison tables of articles, tuned, run and published."""
