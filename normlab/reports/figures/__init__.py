"""The charts of runs: what they show, for pages and for papers."""
