"""Findings about norms and models, by `normlab.inspection` and by `normlab.any_model`.

Begin with `question.py`: a question is a function that returns a `Finding` (`finding.py`), whose
verdict `summary.py` prints. Most findings rest on a change, RMS(new - old) / RMS(old)
(`relative_change.py`).
"""
