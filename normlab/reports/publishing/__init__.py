"""Published results: adds runs, generates files from them, and checks both."""
