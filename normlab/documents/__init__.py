"""The articles' tables and lists, and what was found on each of their cells."""
