"""Scores from sums, counts and text, and statistics over seeds. Nothing here imports torch."""
