"""The questions about any module, one file per question, and what they share.

Begin with `examination.py`: an `Examination` is a model with the example to run, and compares the
outputs of two passes. `registry.py` lists the questions in the order in which they are asked:

    forward      is the forward pass repeatable and free of NaN?
    modes        does training mode, without dropout, change the output?
    padding      does padding change the output at real tokens?
    norms        what does each norm pool over, and does that match its name?
    batch_mates  do the other rows of a batch change a row's output?
    future       do later tokens change the output at earlier positions?
    statistics   are running statistics finite, updated, and close to the data's?

and on request, because they are slow: `precision`, `worth`, `depth`, `channels`, `sinks` (their
common code is in `slow_questions.py`). `leak.py` makes the finding on passes that should agree, and
`culprit.py` finds the module that makes them differ. A question first measures; then one function
writes the answer from the values, using the words of `wording.py`.
"""
