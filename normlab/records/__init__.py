"""Evidence on disk: the files of a run, where they are, and which runs may be compared.

Nothing here imports torch, so listing and reporting start fast. The package is callable:
`normlab.records(norm="bn")` returns the matching records on disk.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, runs_dir: Any = "runs", **where: object) -> Any:
        return import_module("normlab.notebook").records(runs_dir, **where)


sys.modules[__name__].__class__ = _Callable
