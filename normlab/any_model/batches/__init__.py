"""The inputs and outputs of a model.

Begin with `example.py`: an `Example` is a batch whose row and position axes and padding are known,
so rows can be run alone, padded, or next to other rows. `from_batch.py` makes one from a user's
batch: `masks.py` finds the input that marks padding, and `axes.py` the rows and the positions.
`outputs.py` names a model's outputs and finds the corresponding parts of two passes' outputs.
"""
