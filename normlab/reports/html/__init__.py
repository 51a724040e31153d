"""Pages of results: one file each that opens from disk, with charts and without a network."""
