"""Tables, pages and figures made from records, without training or torch.

This package knows nothing about studies: `normlab.publishing` makes the tables of studies with it.

In the order in which a report is made:

- `runs.py` reads runs; `run_paths.py` finds those that a user names, `where.py` selects by values
- `arrangement/` puts them in rows and on the axes of a grid
- `tables/` computes the table: scores, differences, the answer and the notes
- `table_formats/` writes a table in the terminal, Markdown, LaTeX and CSV; `legend.py` prints notes
- `figures/` draws, `pages/` writes HTML
- `setting_names.py` has readable names of settings, `renaming.py` the user's own (`--names`)
- `report.py` is the report of any runs: its page, LaTeX and figures
- `translations/` compares translations: sentences side by side, and the paired bootstrap
"""
