"""The questions about any module, and what they share.

Begin with `examination.py`: an `Examination` is a model with the example to run, and compares the
outputs of two passes. Each question is a function in the file of its name: `padding.py`,
`batch_mates.py`, `future.py`, `forward.py`, `modes.py`, `norms.py`, `statistics.py`; the slow ones
are in `ablations.py` and `layers.py`. `leak.py` makes the finding on passes that should agree, and
`culprit.py` finds the module that makes them differ. `registry.py` lists all questions.
"""
