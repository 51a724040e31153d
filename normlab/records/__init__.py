"""Evidence on disk: what a run leaves behind, where it lies and which runs belong together.

Nothing here imports torch, so listing and reporting answer at once. The package can be called:
`normlab.records(norm="bn")` are the records as they stand on disk.
"""

import sys
from pathlib import Path
from types import ModuleType

from normlab.records.record import RunRecord
from normlab.records.store import RunStore


class _Callable(ModuleType):
    """The name `normlab.records` is both this package and the function of the Python interface."""

    def __call__(self, runs_dir: Path | str = "runs", **where: object) -> list[RunRecord]:
        """Return the records below `runs_dir` that fit `where`, as `RunStore.records` says."""
        return RunStore(runs_dir).records(**where)


sys.modules[__name__].__class__ = _Callable
