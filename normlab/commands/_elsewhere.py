"""What the cells of a sweep do that another launcher carries out (Slurm, Ray), from their folders.

They write to the same `runs_dir`. The cells of a grid are known beforehand; those of a search are
what is going on there since it began.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from normlab.commands._cells import Cells, Row
from normlab.records.store import PROGRESS_FILE, RECORD_FILE

_LAUNCHER = "hydra/launcher="
_SETTINGS = "hydra.launcher."
_LOCAL = ("basic",)
_FILE_CLOCK = 0.1  # seconds by which the time of a file may lie behind the clock


def carried_out_elsewhere(argv: Sequence[str]) -> bool:
    """Tell whether these arguments begin a sweep on a launcher that is not Hydra's own.

    With a flag such as `--cfg` they begin none.
    """
    named = [text.removeprefix(_LAUNCHER) for text in argv if text.startswith(_LAUNCHER)]
    flags = [text for text in argv if text.startswith("-")]
    many = bool(flags) and all(text in ("-m", "--multirun") for text in flags)
    return many and bool(named) and named[-1] not in _LOCAL


def gathering(argv: Sequence[str]) -> list[str]:
    """Return the arguments with which Hydra's own launcher makes the same cells."""
    return [text for text in argv if not text.lstrip("+~").startswith((_LAUNCHER, _SETTINGS))]


def logs_below(sweeps: Path, argv: Sequence[str]) -> Path:
    """Return the folder in which a launcher keeps what its cells say."""
    named = [text.removeprefix(_LAUNCHER) for text in argv if text.startswith(_LAUNCHER)]
    if named and named[-1].startswith("ray"):
        return Path("/tmp/ray/session_latest/logs")  # of each of its nodes
    return sweeps / ".submitit" if named and named[-1].startswith("submitit") else sweeps


@contextmanager
def watched(runs_dir: Path, rows: Sequence[Row], logs: Path) -> Generator[Cells]:
    """Within the block, show the cells that a launcher carries out.

    Without `rows` they are those whose folders change.
    """
    with _heard_alone():
        yield from _watched(Cells(rows, at_a_time=1, logs=logs), runs_dir)


def _watched(cells: Cells, runs_dir: Path) -> Generator[Cells]:
    rows, logs = cells.rows, cells.logs
    over, began = threading.Event(), time.time()
    grid, seen = bool(rows), dict[Path, float]()

    def find() -> None:
        known = {row.folder for row in cells.rows}
        for name in (PROGRESS_FILE, RECORD_FILE):
            for path in runs_dir.glob(f"*/seed*/{name}"):
                if path.parent not in known and _changed_since(path, began):
                    known.add(path.parent)
                    row = Row(f"{path.parent.parent.name} {path.parent.name}", path.parent, "")
                    cells.rows.append(row)

    def find_logs() -> None:
        for number, row in enumerate(cells.rows if grid else ()):
            row.log = _log(logs, number, began)

    def look() -> None:
        if not grid:
            find()
        at_work: dict[int, float] = {}
        find_logs()
        for number, row in enumerate(cells.rows):
            if not row.ended and _changed_since(row.folder / PROGRESS_FILE, began):
                at_work[number] = time.monotonic() - seen.setdefault(row.folder, time.monotonic())
            else:
                row.look_for_end()
        cells.at_a_time = max(1, len(at_work))
        cells.beat(at_work)

    def run() -> None:
        while not over.wait(cells.beat_every):
            look()

    done = f", {cells.before} of them done before" if cells.before else ""
    count = f"{cells.total} cells{done}" if grid else "a search"
    print(f"{count}, carried out elsewhere", flush=True)
    with _told_once(), cells:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield cells
            find_logs()
            for row in cells.rows:  # the launcher is done with all of them
                row.look_for_end()
                row.state = row.state if row.ended else "failed"
            cells.tell(cells.counts())
        finally:
            over.set()
            thread.join()


def _log(logs: Path, number: int, began: float) -> str:
    """Return the folder of a cell's log, named by its job and its number, "" before it has one."""
    found = [path for path in logs.glob(f"*_{number}") if _changed_since(path, began)]
    return max(found, key=lambda path: path.stat().st_mtime).name if found else ""


def _changed_since(path: Path, began: float) -> bool:
    try:
        return path.stat().st_mtime >= began - _FILE_CLOCK
    except OSError:
        return False


@contextmanager
def _heard_alone() -> Generator[None]:
    """Within the block, the standard error is this process's own.

    Slurm's commands, which submitit calls at every look, would write over the table.
    """
    try:
        real = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        yield
        return
    former = sys.stderr
    former.flush()
    with os.fdopen(os.dup(real), "w", buffering=1, encoding=former.encoding) as own:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, real)
            sys.stderr = own
            yield
        finally:
            sys.stderr = former
            os.dup2(own.fileno(), real)
            os.close(nowhere)


@contextmanager
def _told_once() -> Generator[None]:
    """Within the block, let submitit say each kind of message once, above the table."""
    logger, once = logging.getLogger("submitit"), _Once()
    logger.addFilter(once)  # its handlers are made when Hydra loads it, which is later
    try:
        yield
    finally:
        logger.removeFilter(once)


class _Once(logging.Filter):
    """Print each kind of a launcher's messages once: it repeats them at every look.

    Its handlers write past the table, so that no message goes on to them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Print a message; those that differ in a number are of one kind."""
        text = record.getMessage()
        kind = "".join(c for c in text if not c.isdigit())
        if kind not in self._said:
            self._said.add(kind)
            print(f"{record.name}: {text}", file=sys.stderr, flush=True)
        return False
