"""From `key=value` to a checked config: options, ranges, places of norms, recipes, suggestions."""
