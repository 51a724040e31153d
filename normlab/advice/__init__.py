"""Advice that rests on the ledger: `which_norm.py` makes the page `results/which_norm.md`."""
