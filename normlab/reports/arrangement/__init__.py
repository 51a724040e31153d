"""Arranges runs as the rows of tables.

- `arrangement.py`: `Arrangement`, the rows, axes and columns of one table and the runs that fill it
- `unplanned.py`: arranges runs that no study planned, in one table (`arrange`), or in one table per
  recipe (`arrange_by_recipe`)
- `settings.py`: the settings of experiments, and those in which they differ
- `recipes.py`: which experiments share a table; `grid.py`: which settings are the axes of its grid
- `row_names.py`: names rows by their norms and by the settings in which they differ
"""
