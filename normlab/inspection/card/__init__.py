"""The report card of a norm (`normlab norm card`), from short runs with and without training.

`examined_norm.py` is the norm with the configs of the card's runs, whose sizes are in `scales.py`.
Each question is in a file of its own. `content.py` asks them, and `files.py` writes and publishes.
"""
