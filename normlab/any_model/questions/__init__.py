"""The questions about any module, one file per question, and the code that they share.

Begin with `examination.py`: an `Examination` has a model and the example to run, and compares the
outputs of two passes. `registry.py` lists the questions in the order in which they are asked:

    forward      is the forward pass repeatable and free of NaN?
    modes        does training mode, without dropout, change the output?
    padding      does padding change the output at real tokens?
    norms        what does each norm pool over, and does that match its name?
    batch_mates  do the other rows of a batch change a row's output?
    future       do later tokens change the output at earlier positions?
    statistics   are running statistics finite, updated, and close to the data's?

The slow questions are asked only on request: `precision`, `worth`, `depth`, `channels` and `sinks`,
whose common code is in `slow_questions.py`. `leak.py` decides what it means if passes that should
agree differ, and `culprit.py` finds the module that makes them differ. A question first measures,
then decides on the verdict; another function describes the measured values in words, with the
phrases in `wording.py`.
"""
