"""Data: text corpora and images, subwords, the cache of prepared data, and batching."""
