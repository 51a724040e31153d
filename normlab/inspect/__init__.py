"""Questions about what a norm or a model does, in one registry, and their answers.

The package is callable: `normlab.inspect(run)` (see `normlab.inspect.model.inspect`).
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A callable module: `normlab.inspect` is both this package and the function `inspect`."""

    def __call__(self, subject: Any, only: Any = ()) -> Any:
        return import_module("normlab.inspect.model").inspect(subject, only)


sys.modules[__name__].__class__ = _Callable
