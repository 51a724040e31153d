"""The examinations of a card, one question a file: `examine(examined)` returns its `Finding`."""
