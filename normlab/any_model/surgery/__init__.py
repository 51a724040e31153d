"""Changes to a trained model's norms.

Begin with `swap.py`: it replaces norms by others, fitted to the old ones; `adapt.py` trains the
result and saves it. `fold.py` folds norms into adjacent weights, exactly; `foldable.py` says why
some cannot be, from the flow of features that `flow.py` records. `ablation.py` leaves out a module
or the precision of its numbers.
"""
