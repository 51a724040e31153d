"""Training: the loop, optimizers, evaluation, checkpoints, runtime and sinks.

The package is callable: `normlab.train(config)` trains a run (see `normlab.train.run.train`).
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A callable module: `normlab.train` is both this package and the function `train`."""

    def __call__(self, config: Any) -> Any:
        return import_module("normlab.train.run").train(config)


sys.modules[__name__].__class__ = _Callable
