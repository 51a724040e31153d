"""HTML and Markdown pages, made from runs and their tables."""
