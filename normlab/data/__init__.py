"""Text in, batches of token ids out: corpora, subwords, the cache of prepared data, batching."""
