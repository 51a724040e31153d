"""Measuring speed: a synthetic corpus, the machine's own peak, training runs side by side."""
