"""From `key=value` to a checked config: options, ranges, norm places, recipes, suggestions."""
