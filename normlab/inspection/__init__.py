"""Questions about norms, and about models that normlab built.

Begin with `questions.py`, which lists all questions. About a norm by itself (`bare_norm.py` runs
it): `contract.py` asks what the package assumes of every norm, `card.py` and `short_runs.py` make
its report card, `explain.py` shows what it computes (`pooling.py`, `images.py`, `marks.py`,
`wiring.py`), and `checks/` decides parts of claims. About a model (`subject.py`; `recording.py`
records its passes): `leaks.py`, `padding.py`, `outlier.py`, `inference.py`, `depth.py`,
`ablations.py` and `held_out_probes.py`; `sheet.py` asks them all.

`normlab.any_model` asks any module some of these questions. Of our own models more is known, so the
answers go further: they also hold for training statistics, stack by stack, and over the same
examples for every run.
"""

from importlib import import_module
from typing import Any


def inspect(subject: Any, *inputs: Any, **options: Any) -> Any:
    """Return the answers to questions about a run, a config or any torch model.

    This is `normlab.inspection.sheet.inspect` for what normlab built, and
    `normlab.any_model.report.inspect` for a module and batches of its inputs.
    """
    home = "any_model.report" if hasattr(subject, "named_modules") else "inspection.sheet"
    return import_module(f"normlab.{home}").inspect(subject, *inputs, **options)
