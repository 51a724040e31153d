"""The worked examples of the articles (`articles.py`) and of the interactive page."""
