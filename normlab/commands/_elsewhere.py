"""What the cells of a sweep do that another launcher carries out (Slurm, Ray), from their folders.

They write to the same `runs_dir`, so what is going on there since the sweep began is the sweep.
"""

import logging
import math
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from normlab.commands._cells import Cells, Row
from normlab.records.store import PROGRESS_FILE, RECORD_FILE

_LAUNCHER = "hydra/launcher="
_LOCAL = ("basic",)


def carried_out_elsewhere(argv: Sequence[str]) -> bool:
    """Tell whether these arguments begin a sweep on a launcher that is not Hydra's own."""
    named = [text.removeprefix(_LAUNCHER) for text in argv if text.startswith(_LAUNCHER)]
    many = any(text in ("-m", "--multirun") for text in argv)
    return many and bool(named) and named[-1] not in _LOCAL


def count_of(argv: Sequence[str]) -> int:
    """Return how many cells the overrides make."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    given = [text for text in argv if "=" in text and not text.startswith("-")]
    parsed = OverridesParser.create().parse_overrides(given)
    sweeps = [each for each in parsed if each.is_sweep_override()]
    return math.prod(sum(1 for _ in each.sweep_string_iterator()) for each in sweeps)


@contextmanager
def watched(runs_dir: Path, argv: Sequence[str]) -> Generator[Cells]:
    """Within the block, show the cells that a launcher carries out."""
    total = count_of(argv)
    cells = Cells([], at_a_time=1, logs=runs_dir / ".sweeps", total=total)
    over = threading.Event()
    quiet = _Once()
    handlers = logging.getLogger("submitit").handlers
    began, seen = time.time(), dict[Path, float]()

    def look() -> None:
        for name in (PROGRESS_FILE, RECORD_FILE):
            for path in runs_dir.glob(f"*/seed*/{name}"):
                if path.parent not in seen and _changed_since(path, began):
                    seen[path.parent] = time.monotonic()
                    row = Row(f"{path.parent.parent.name} {path.parent.name}", path.parent, "")
                    cells.rows.append(row)
        at_work = {
            number: time.monotonic() - seen[row.folder]
            for number, row in enumerate(cells.rows)
            if (row.folder / PROGRESS_FILE).exists()
        }
        for row in cells.rows:
            row.look_for_end()
        cells.at_a_time = max(1, len(at_work))
        cells.beat(at_work)

    def run() -> None:
        while not over.wait(cells.beat_every):
            look()

    print(f"{total} cells, carried out elsewhere; those that have ended are not begun again")
    for handler in handlers:
        handler.addFilter(quiet)
    with cells:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield cells
        finally:
            over.set()
            thread.join()
            for handler in handlers:
                handler.removeFilter(quiet)


def _changed_since(path: Path, began: float) -> bool:
    try:
        return path.stat().st_mtime >= began
    except OSError:
        return False


class _Once(logging.Filter):
    """Let each kind of a launcher's messages through once: it repeats them at every look."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a message is shown; those that differ in a number are of one kind."""
        kind = "".join(c for c in record.getMessage() if not c.isdigit())
        if kind in self._said:
            return False
        self._said.add(kind)
        return True
