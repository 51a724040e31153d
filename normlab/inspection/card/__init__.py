"""Makes the report card of a norm (`normlab norm card`) from short runs and measurements.

`examined_norm.py` has the norm and the configs of the card's runs; `scales.py` has their sizes.
Each question is in the file of its name, except for the four questions of `short_runs.py`, one per
task. `content.py` asks the questions, and `files.py` writes and publishes the card. The format of
`card.json` is in `normlab/reports/card_file.py`.
"""
