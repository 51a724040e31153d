"""Data: text corpora and images, subwords, a cache of prepared data, and batching."""
