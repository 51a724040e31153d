"""Findings about norms and models, made by `normlab.inspection` and `normlab.any_model`.

Begin with `question.py`. A question is a function that returns a `Finding` (`finding.py`), and
`summary.py` prints the verdicts. Most findings are based on a change, RMS(new - old) / RMS(old)
(`relative_change.py`).
"""
