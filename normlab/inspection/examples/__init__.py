"""Worked examples: the articles' own (`articles.py`), and those of the interactive page."""
