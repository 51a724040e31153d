"""Many runs on a terminal: a live table, or in a pipe a plain line now and then.

What each run does is read from its folder.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.records.store import RECORD_FILE, read_progress, read_record
from normlab.studies.loop import LOG_FILE, Cell, Show
from normlab.train.console import duration, figure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_SECONDS = 10.0  # between two lines in a pipe
_LINES = 8  # of the terminal that are not the table's
WAITING, RUNNING, FAILED, PRUNED = "waiting", "running", "failed", "pruned"


@dataclass
class _Row:
    """A run in the table: its state, its last progress, and its seconds."""

    state: str
    now: Mapping[str, Any] | None = None
    seconds: float = 0.0

    @property
    def does(self) -> str:
        """Return the phase of the run and how far it is."""
        if self.state != RUNNING or self.now is None:
            return "starting" if self.state == RUNNING else self.state
        total = f"/{self.now['total']:,}" if self.now["total"] else ""
        return f"{self.now['phase']} {self.now['done']:,}{total}"

    @property
    def loss(self) -> str:
        return figure(self.now["loss"]) if self.now and self.now["loss"] is not None else ""

    @property
    def left(self) -> float | None:
        """Return the seconds of training that are left, if it says so."""
        return self.now["left"] if self.state == RUNNING and self.now else None


class Lines(Show):
    """Prints the lines of progress alone."""

    def say(self, line: str) -> None:
        print(line, flush=True)


class Runs(Show):
    """The runs of a plan, shown while they are carried out.

    Args:
        cells: all runs of the plan.
        at_a_time: how many run at a time.
        pruned: tells of a folder whether its run was stopped as hopeless.
        console: where the table is shown; by default the standard error.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        *,
        at_a_time: int,
        pruned: Callable[[Path], bool] = lambda folder: False,
        console: "Console | None" = None,
    ) -> None:
        from rich.console import Console

        self._at_a_time, self._pruned = at_a_time, pruned
        self._rows = {cell: _Row(self._ended(cell) or WAITING) for cell in cells}
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._live: Any = None
        self.every = 1.0 if self._console.is_terminal else _PIPE_SECONDS

    def _ended(self, cell: Cell) -> str | None:
        """Return how a run has ended, by its record; None if it has not."""
        if self._pruned(cell.folder):
            return PRUNED
        try:
            there = (cell.folder / RECORD_FILE).is_file()
            status = read_record(cell.folder).outcome.status if there else ""
        except ValueError:
            return None
        return status if status in ("finished", "diverged") else None

    def _in(self, *states: str) -> list[_Row]:
        return [row for row in self._rows.values() if row.state in states]

    @property
    def _done(self) -> int:
        return len(self._rows) - len(self._in(WAITING, RUNNING))

    def begin(self, later: int = 0) -> str:
        """Say what there is to do; `later` of the runs only if parts of claims stay undecided."""
        done = f", {self._done} of them done before" if self._done else ""
        more = f"; {later} more if parts are undecided after them" if later else ""
        runs = f"{len(self._rows) - later} runs{done}, {self._at_a_time} at a time{more}"
        return f"{runs}; {LOG_FILE} in the folder of each"

    def __enter__(self) -> "Runs":
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, get_renderable=self.table)
            self._live.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for cell, row in self._rows.items():
            if row.state == RUNNING:
                row.state = self._ended(cell) or (FAILED if kind is None else RUNNING)
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
                row.state = self._ended(cell) or FAILED
        if self._live is not None:
            self._live.refresh()
        else:
            own = [(cell, row) for cell, row in self._rows.items() if row.state == RUNNING]
            said = [f"{cell.name}: {row.does} {row.loss}".rstrip() for cell, row in own]
            print(" | ".join([self.counts(), *said]), flush=True)

    @property
    def left(self) -> float | None:
        """Estimate the seconds to the end; None before any run gives its own."""
        rows = self._rows.values()
        lefts = [row.left for row in rows if row.left is not None]
        known = [row for row in rows if row.left is not None or row.state != RUNNING]
        whole = [row.seconds + (row.left or 0) for row in known if row.seconds]
        if not whole:
            return None
        rest = sum(lefts) + len(self._in(WAITING)) * sum(whole) / len(whole)
        return max([rest / self._at_a_time, *lefts])

    def counts(self) -> str:
        """Return how many runs are done and failed, and the time left."""
        failed, left = len(self._in(FAILED)), self.left
        parts = [f"{self._done} of {len(self._rows)} done"]
        parts += [f"{failed} failed"] if failed else []
        return ", ".join([*parts, *([f"about {duration(left)} left"] if left else [])])

    def table(self) -> "Table":
        """Return the running and failed runs, as many as the terminal has room for."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self.counts()), title_justify="left", box=None, pad_edge=False)
        table.padding = (0, 2, 0, 0)
        for name, width in (("run", None), ("does", 20), ("loss", 6), ("left", 7)):
            table.add_column(name, min_width=width, no_wrap=True, overflow="ellipsis")
        rows = [
            (Text(cell.name), Text(row.does, style), row.loss, duration(row.left or 0))
            for state, style in ((RUNNING, "cyan"), (FAILED, "red"))
            for cell, row in self._rows.items()
            if row.state == state
        ]
        for row in rows[: max(3, self._console.height - _LINES)]:
            table.add_row(*row)
        return table

    def stopped(self, command: str) -> list[str]:
        """Say after Ctrl-C what is done and left, and the command that resumes."""
        begun = [
            f"  {cell.name} (saved at {row.does})"
            for cell, row in self._rows.items()
            if row.state == RUNNING
        ]
        left = len(self._rows) - self._done
        said = f"stopped: {self._done} of {len(self._rows)} runs done, {left} left"
        return [said, *begun, f"resume with: {command}"]
