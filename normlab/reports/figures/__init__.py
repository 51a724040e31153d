"""The charts of runs, for pages and for papers."""
