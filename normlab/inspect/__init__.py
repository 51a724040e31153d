"""Questions about what a norm or a model does, in one registry, and their answers."""
