"""Training: the loop, optimizers, evaluation, checkpoints, runtime and sinks.

The package is callable: `normlab.train(config)` trains a run.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord


class _Callable(ModuleType):
    """A callable module: `normlab.train` is both this package and the function `train`."""

    def __call__(self, config: "DictConfig") -> "RunRecord":
        """Train a run (see `normlab.train.run.train`, which is imported on the call)."""
        return import_module("normlab.train.run").train(config)


sys.modules[__name__].__class__ = _Callable
