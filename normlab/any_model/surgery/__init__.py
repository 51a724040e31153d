"""Changes the norms of a trained model.

Begin with `swap.py`, which replaces norms with others: `formula.py` finds what an old norm
computes, `swapped.py` makes the new one, `calibration.py` runs the model on batches, and
`least_squares.py` fits the new norm's outputs to the old one's. `adapt.py` trains the result and
saves it.

`fold.py` folds norms exactly into adjacent weights, and `foldable.py` finds out why some norms
cannot be folded, from the flow of features that `flow.py` records. `ablation.py` skips a module or
reduces the precision of numbers.
"""
