"""Placements, which say where the norms of a Transformer are: one file per wiring."""
