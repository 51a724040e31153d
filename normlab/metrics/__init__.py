"""Scores computed from sums, counts and text, and statistics over seeds, without torch."""
