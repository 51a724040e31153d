"""Tasks, each of which defines its data, batches, summed losses and scores in one file."""
