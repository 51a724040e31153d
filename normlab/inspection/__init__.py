"""Questions about norms, and about models that normlab built.

Begin with `questions.py`, which lists all questions. About a norm by itself (`bare_norm.py` runs
it): `contract.py` asks what the package assumes of every norm, `card.py` and `short_runs.py` make
its report card, which `card_files.py` writes and publishes, `explain.py` shows what it computes
(`pooling.py`, `images.py`, `marks.py`, `wiring.py`), and `checks/` decides parts of claims;
`new_norm.py` writes the files of a new norm. About a model (`subject.py`; `recording.py` records
its passes): `leaks.py`, `padding.py`, `outlier.py`, `inference.py`, `depth.py`, `ablations.py` and
`held_out_probes.py`; `sheet.py` asks them all.

`normlab.any_model` asks any module some of these questions. More is known about our own models, so
the answers go further: they also cover batch statistics, are given for each stack, and use the same
examples for every run.
"""
