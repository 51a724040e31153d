"""The articles' tables and lists, with the findings on each cell."""
