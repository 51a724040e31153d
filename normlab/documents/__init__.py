"""The articles' tables and lists, with the findings on each cell.

What is here are five articles. The package is called as its command, `normlab documents`, as the
folder `configs/document` and as the key `documents` of a claim, so that each leads to the others.
"""
