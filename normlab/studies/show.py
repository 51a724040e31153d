"""Many runs on a terminal: a live table, or in a pipe a plain line now and then.

What each run does is read from its folder.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.records.store import RECORD_FILE, read_progress, read_record
from normlab.studies.local import Cell
from normlab.studies.loop import Show
from normlab.train.console import duration, figure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_SECONDS = 10.0  # between two lines in a pipe
_LINES = 8  # of the terminal that are not the table's
WAITING, RUNNING, FAILED, PRUNED = "waiting", "running", "failed", "pruned"


@dataclass
class Row:
    """A run in the table: its state, its last progress, and its seconds."""

    cell: Cell
    log: str
    state: str = WAITING
    now: Mapping[str, Any] | None = None
    seconds: float = 0.0

    @property
    def ended(self) -> bool:
        return self.state not in (WAITING, RUNNING)

    @property
    def does(self) -> str:
        """Return the phase of the run and how far it is."""
        if self.state != RUNNING:
            return self.state
        if self.now is None:
            return "starting"
        total = f"/{self.now['total']:,}" if self.now["total"] else ""
        return f"{self.now['phase']} {self.now['done']:,}{total}"

    @property
    def loss(self) -> str:
        return figure(self.now["loss"]) if self.now and self.now.get("loss") is not None else ""

    @property
    def left(self) -> float | None:
        """Return the seconds of training that are left, if it says so."""
        return self.now.get("left") if self.state == RUNNING and self.now else None


class Lines(Show):
    """Prints the lines of progress alone."""

    def say(self, line: str) -> None:
        print(line, flush=True)


class Runs(Show):
    """The runs of a plan, shown while they are carried out.

    Args:
        cells: all runs of the plan.
        at_a_time: how many run at a time.
        logs: the folder of their logs.
        pruned: tells of a folder whether its run was stopped as hopeless.
        console: where the table is shown; by default the standard error.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        *,
        at_a_time: int,
        logs: Path,
        pruned: Callable[[Path], bool] = lambda folder: False,
        console: "Console | None" = None,
    ) -> None:
        from rich.console import Console

        self._rows = {cell: Row(cell, f"run{number}.log") for number, cell in enumerate(cells)}
        self._at_a_time, self._logs, self._pruned = at_a_time, logs, pruned
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._live: Any = None
        self.every = 1.0 if self._console.is_terminal else _PIPE_SECONDS
        for row in self._rows.values():
            self._look_for_end(row, WAITING)
        self._before = self._done

    @property
    def _done(self) -> int:
        return sum(row.ended for row in self._rows.values())

    def begin(self, later: int = 0) -> str:
        """Say what there is to do; `later` of the runs only if parts of claims stay undecided."""
        done = f", {self._before} of them done before" if self._before else ""
        more = f"; {later} more if parts are undecided after them" if later else ""
        runs = f"{len(self._rows) - later} runs{done}, {self._at_a_time} at a time{more}"
        return f"{runs}; logs in {shown(self._logs)}"

    def __enter__(self) -> "Runs":
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, get_renderable=self.table)
            self._live.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for row in self._rows.values():
            if row.state == RUNNING:
                self._look_for_end(row, FAILED if kind is None else RUNNING)
        if self._live is not None:
            self._live.refresh()
            self._live.stop()
            self._live = None

    def say(self, line: str) -> None:
        # The live table says the same, so only into a file.
        if self._live is None or not sys.stdout.isatty():
            print(line, flush=True)

    def beat(self, running: Mapping[Cell, float]) -> None:
        for cell, row in self._rows.items():
            if cell in running:
                row.state, row.seconds = RUNNING, running[cell]
                row.now = read_progress(cell.folder) or row.now
            elif row.state == RUNNING:
                self._look_for_end(row, FAILED)
        if self._live is not None:
            self._live.refresh()
        else:
            running_rows = [row for row in self._rows.values() if row.state == RUNNING]
            said = [f"{row.cell.name}: {row.does} {row.loss}".rstrip() for row in running_rows]
            print(" | ".join([self.counts(), *said]), flush=True)

    def _look_for_end(self, row: Row, otherwise: str) -> None:
        """Read from its record how a run ended."""
        folder = row.cell.folder
        row.state = PRUNED if self._pruned(row.cell.folder) else otherwise
        try:
            ended = (folder / RECORD_FILE).is_file()
            status = read_record(folder).outcome.status if ended else ""
        except (OSError, ValueError):
            return
        if status in ("finished", "diverged"):
            row.state = status

    @property
    def left(self) -> float | None:
        """Estimate the seconds to the end; None before any run gives its own."""
        rows = self._rows.values()
        lefts = [row.left for row in rows if row.left is not None]
        whole = [row.seconds + row.left for row in rows if row.left is not None]
        whole += [row.seconds for row in rows if row.ended and row.seconds]
        if not whole:
            return None
        waiting = sum(row.state == WAITING for row in rows)
        rest = sum(lefts) + waiting * sum(whole) / len(whole)
        return max([rest / self._at_a_time, *lefts])

    def counts(self) -> str:
        """Return how many runs are done and failed, and the time left."""
        failed = sum(row.state == FAILED for row in self._rows.values())
        parts = [f"{self._done} of {len(self._rows)} done"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"about {duration(left)} left"] if (left := self.left) else []
        return ", ".join(parts)

    def table(self) -> "Table":
        """Return the running and failed runs, as many as the terminal has room for."""
        from rich.table import Table
        from rich.text import Text

        rows = [row for row in self._rows.values() if row.state in (RUNNING, FAILED)]
        rows.sort(key=lambda row: row.state != RUNNING)
        kept = rows[: max(3, self._console.height - _LINES)]
        table = Table(title=Text(self.counts()), caption=Text(f"logs in {shown(self._logs)}"))
        table.box, table.pad_edge, table.padding = None, False, (0, 2, 0, 0)
        table.title_justify = table.caption_justify = "left"
        for name, width in (("run", None), ("does", 20), ("loss", 6), ("left", 7), ("log", None)):
            table.add_column(name, min_width=width, no_wrap=True, overflow="ellipsis")
        for row in kept:
            left = duration(row.left) if row.left else ""
            style = "cyan" if row.state == RUNNING else "red"
            does = Text(row.does, style=style)
            table.add_row(Text(row.cell.name), does, row.loss, left, Text(row.log, style="dim"))
        return table

    def stopped(self, command: str) -> list[str]:
        """Say after Ctrl-C what is done and left, and the command that resumes."""
        rows = self._rows.values()
        begun = [f"  {row.cell.name} (saved at {row.does})" for row in rows if row.state == RUNNING]
        left = len(rows) - self._done
        return [
            f"stopped: {self._done} of {len(rows)} runs done, {left} left",
            *begun,
            f"resume with: {command}",
        ]


def shown(path: Path) -> str:
    """Return a path as people type it from here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
