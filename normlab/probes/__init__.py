"""Read-only observers of a training run, one a file."""
