"""Benchmarks: the speed of training steps, and the estimated cost of a whole run."""
