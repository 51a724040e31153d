"""Scores from sums, counts and text, and their spread over seeds. No module here imports torch."""
