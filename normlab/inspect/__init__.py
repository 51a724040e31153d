"""Questions about what a norm or a model does: one registry, and the answers."""
