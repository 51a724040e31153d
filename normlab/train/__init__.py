"""Training: the loop, optimizers, evaluation, checkpoints, runtime and sinks.

The package can be called: `normlab.train(config)` carries out a run.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord


class _Callable(ModuleType):
    """The name `normlab.train` is both this package and the function of the Python interface."""

    def __call__(self, config: "DictConfig") -> "RunRecord":
        """Carry out a run as `normlab.train.run.train` says, which is found when it is called."""
        return import_module("normlab.train.run").train(config)


sys.modules[__name__].__class__ = _Callable
