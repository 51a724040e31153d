"""Norms: each a set of axes to pool statistics over, from nothing to the whole batch."""
