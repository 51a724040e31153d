"""Scores computed from sums, counts and text, and their spread over seeds, without torch."""
