"""Placements: where the norms of a Transformer are. Each file has one wiring."""
