"""The report card of a norm (`normlab norm card`), from short runs with and without training.

`examined_norm.py` has the norm and the configs of the card's runs, whose sizes are in `scales.py`.
Each question is in its own file. `content.py` asks the questions, and `files.py` writes and
publishes the card.
"""
