"""Probes, which are read-only observers of a training run."""
