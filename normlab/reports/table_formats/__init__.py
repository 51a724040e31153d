"""The formats of tables, one file per format, and the layout of LaTeX pages."""
