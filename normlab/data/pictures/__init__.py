"""Pictures with a class each: where they come from, and how training varies them."""
