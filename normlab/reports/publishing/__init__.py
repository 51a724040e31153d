"""Published results: adding runs, the files made of them, and checking both."""
