"""Data: text, images and tables, vocabularies, the cache of prepared data, and batching."""
