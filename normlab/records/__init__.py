"""Evidence on disk: what a run leaves behind, where it lies and which runs belong together.

Nothing here imports torch, so listing and reporting answer at once. The package can be called:
`normlab.records(norm="bn")` are the records as they stand on disk.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from normlab.notebook import Records


class _Callable(ModuleType):
    """The name `normlab.records` is both this package and the function of the Python interface."""

    def __call__(self, runs_dir: "Path | str" = "runs", **where: object) -> "Records":
        """Return records as `normlab.notebook.records` says, which is found when it is called."""
        return import_module("normlab.notebook").records(runs_dir, **where)


sys.modules[__name__].__class__ = _Callable
