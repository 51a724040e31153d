"""Speed measurements: `python scripts/bench SUBJECT`."""
