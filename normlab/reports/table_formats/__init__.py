"""The forms in which a table is written: one file for each, and the layout of LaTeX pages."""
