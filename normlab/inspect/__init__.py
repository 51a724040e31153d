"""Questions about what a norm or a model does, in one registry, and their answers.

The package is callable: `normlab.inspect(run)` (see `normlab.inspect.model.inspect`), and
`normlab.inspect(module, batches)` (see `normlab.inspect.foreign.report.inspect`).
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A callable module: `normlab.inspect` is both this package and the function `inspect`."""

    def __call__(self, subject: Any, *given: Any, **options: Any) -> Any:
        home = "foreign.report" if hasattr(subject, "named_modules") else "model"
        return import_module(f"normlab.inspect.{home}").inspect(subject, *given, **options)


sys.modules[__name__].__class__ = _Callable
