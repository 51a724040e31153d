"""Models: attention, feed-forward and embedding layers, the stacks and the seq2seq Transformer."""
