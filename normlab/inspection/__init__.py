"""Questions about a norm or a model that normlab built, in one registry, and their answers.

Two tools share the registry: questions about a norm (`explain`, `contract`, `card`, `outlier`) and
questions about a model of ours (`model` and the rest). Other models are examined by
`normlab.any_model`.
"""

from importlib import import_module
from typing import Any


def inspect(subject: Any, *inputs: Any, **options: Any) -> Any:
    """Return the answers to questions about a run, a config or any torch model.

    This is `normlab.inspection.model.inspect` for what normlab built, and
    `normlab.any_model.report.inspect` for a module and batches of its inputs.
    """
    home = "any_model.report" if hasattr(subject, "named_modules") else "inspection.model"
    return import_module(f"normlab.{home}").inspect(subject, *inputs, **options)
