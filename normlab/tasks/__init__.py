"""Tasks. Each task defines its data, batches, summed losses and scores in one file."""
