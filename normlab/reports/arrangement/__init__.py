"""Runs arranged as the rows of tables.

- `table_runs.py`: `TableRuns`, the rows, axes and columns of one table and the runs that fill it
- `arranged.py`: arranges any runs so (`arranged`), or as one table per recipe (`by_recipe`)
- `recipes.py`: which experiments share a table; `grid.py`: which settings are the axes of its grid
- `row_names.py`: names rows by their norms and by what differs (`differing_settings.py`)
"""
