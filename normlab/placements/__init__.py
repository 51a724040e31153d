"""Placements: where a Transformer's norms are. One file per wiring."""
