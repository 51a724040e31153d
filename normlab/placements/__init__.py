"""Placements: where the norms of a Transformer are. One file per wiring."""
