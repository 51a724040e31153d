"""Placements, which put norms into a Transformer. Each file has one wiring."""
