"""Running text in documents: sources, vocabulary, segment pairs, masks and windows."""
