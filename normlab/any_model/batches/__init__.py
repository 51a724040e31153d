"""The inputs and outputs of a model.

Begin with `example.py`: an `Example` is a batch whose row axis, position axis and padding are
known, so that rows can be run alone, padded, or next to other rows. `from_batch.py` makes one from
a user's batch: `masks.py` finds the input that marks padding, and `axes.py` finds the rows and the
positions. `outputs.py` selects a model's outputs, and `overlap.py` finds which parts of them
correspond if two passes have different rows or positions.
"""
