"""Compares translations of a test set.

- `reference_text.py` reads the sources and references of a run's test set
- `side_by_side.py` puts the translations of several runs next to each other
- `bootstrap.py` tests whether the difference in BLEU between two rows would hold on other sentences
"""
