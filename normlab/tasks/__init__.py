"""Tasks: data, batches, summed losses and scores. One file per task."""
