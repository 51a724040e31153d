"""Publishes the runs of studies, and checks that published files are unchanged and up to date.

Only this package uses both `studies` (what was planned) and `reports` (tables and pages of runs):

- `study_arrangement.py` arranges a study's runs by its plan, so that `reports` can make their table
- `published.py` reads the records of a published study, and makes its tables and page
- `publish.py` adds runs to the published ones
- `verification.py` checks that evidence is unchanged, and that tables and pages match it
- `literature.py` compares our results with numbers published by others
"""
