"""Where a run's metrics go: the terminal, a file, W&B; one sink a file."""
