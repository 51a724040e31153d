"""Publishes the runs of studies, and checks what is published.

The rooms `studies` (what was planned) and `reports` (tables and pages of any runs) meet only here:

- `study_arrangement.py` arranges a study's runs by its plan, so that `reports` can make their table
- `published.py` reads a published study, and makes its table and page from the records
- `publish.py` adds runs to the published ones; `verification.py` checks that all files still match
- `literature.py` compares our results with numbers published by others
"""
