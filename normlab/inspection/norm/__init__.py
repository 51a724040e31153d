"""Examines a norm by itself, outside any model.

`contract.py` has the questions that `normlab norm check` asks, and `new_norm.py` writes the files
of a new norm. The contract and the other folders of `normlab/inspection` use these files:

    bare_norm.py        a norm outside any model, new or trained
    example_norm.py     an option's norm at the width of the articles' example tensor
    norm_calls.py       calls with fixed random draws, and comparisons of outputs
    padding_effect.py   what padding changes
    pooling.py          what an output depends on, found by changing one input at a time
    worked_example.py   what a norm computes on the articles' tensor
"""
