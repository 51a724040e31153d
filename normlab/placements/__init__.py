"""Placements: where the norms of a Transformer sit. One file per wiring."""
