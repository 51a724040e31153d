"""Scores from sums, counts and text, and their spread over seeds. Nothing here imports torch."""
