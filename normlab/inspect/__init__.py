"""Questions about a norm or a model that normlab built, in one registry, and their answers.

Two tools share the registry: questions about a norm (`explain`, `contract`, `card`, `outlier`) and
questions about a model of ours (`model` and the rest). Any other model has a room of its own,
`normlab.any_model`.

The package is callable: `normlab.inspect(run)` (see `normlab.inspect.model.inspect`), and
`normlab.inspect(module, batches)` (see `normlab.any_model.report.inspect`).
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A callable module: `normlab.inspect` is both this package and the function `inspect`."""

    def __call__(self, subject: Any, *batches: Any, **options: Any) -> Any:
        home = "any_model.report" if hasattr(subject, "named_modules") else "inspect.model"
        return import_module(f"normlab.{home}").inspect(subject, *batches, **options)


sys.modules[__name__].__class__ = _Callable
