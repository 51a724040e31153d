"""Probes: read-only observers of a training run."""
