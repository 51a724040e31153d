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
from normlab.studies.loop import Cell, Show
from normlab.train.sinks.console import duration, figure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

IN_A_PIPE = 10.0
"""Seconds between two lines in a pipe."""
A_MINUTE = 60.0
_LINES = 8  # of the terminal that are not the table's
WAITING, RUNNING, PRUNED = "waiting", "running", "pruned"
_COLORS = {"finished": "green", "diverged": "red", "failed": "red", RUNNING: "cyan"}


@dataclass
class Row:
    """A run in the table; `over` tells whether it was stopped for good, as a pruned trial is."""

    name: str
    folder: Path
    log: str
    over: Callable[[], bool]
    state: str = WAITING
    now: Mapping[str, Any] | None = None
    loss: float | None = None
    seconds: float = 0.0

    @property
    def ended(self) -> bool:
        return self.state in ("finished", "diverged", "failed", PRUNED)

    @property
    def does(self) -> str:
        """Say what it does: the phase and how far it is, or how it ended."""
        if self.state != RUNNING:
            return self.state
        if self.now is None:
            return "starting"
        total = f"/{self.now['total']:,}" if self.now["total"] else ""
        return f"{self.now['phase']} {self.now['done']:,}{total}"

    @property
    def left(self) -> float | None:
        """Return the seconds of training that are left, if it says so."""
        return self.now.get("left") if self.state == RUNNING and self.now else None

    def look_for_end(self) -> None:
        """Read from its record how it ended, if it did."""
        path = self.folder / RECORD_FILE
        try:
            record = read_record(path) if path.is_file() else None
        except (OSError, ValueError):
            return
        if record is not None and record.outcome.status in ("finished", "diverged"):
            self.state = record.outcome.status
            loss = record.scores.get("valid/loss")
            self.loss = loss.value if loss else self.loss
        elif self.over():
            self.state = PRUNED


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
        headline: makes the line above the table, from the seconds of each running run; None counts
            what is done.
        every: seconds between two lines in a pipe.
        pruned: tells of a folder whether its run was stopped as hopeless.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        *,
        at_a_time: int,
        logs: Path,
        headline: Callable[[Mapping[Cell, float]], str] | None = None,
        every: float = IN_A_PIPE,
        pruned: Callable[[Path], bool] = lambda folder: False,
        console: "Console | None" = None,
    ) -> None:
        from rich.console import Console

        def row(number: int, cell: Cell) -> Row:
            log = f"run{number}.log"
            return Row(cell.name, cell.folder, log, over=lambda: pruned(cell.folder))

        self._of = {cell: row(number, cell) for number, cell in enumerate(cells)}
        self.rows = list(self._of.values())
        self._at_a_time, self._logs, self._headline = at_a_time, logs, headline
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._live: Any = None
        self.every = 1.0 if self._console.is_terminal else every
        self._running: Mapping[Cell, float] = {}
        for each in self.rows:
            each.look_for_end()
        self._before = sum(each.ended for each in self.rows)

    def begin(self, later: int = 0) -> str:
        """Say what there is to do; `later` of the runs only if parts of claims stay undecided."""
        done = f", {self._before} of them done before" if self._before else ""
        more = f"; {later} more if parts are undecided after them" if later else ""
        runs = f"{len(self.rows) - later} runs{done}, {self._at_a_time} at a time{more}"
        return f"{runs}; logs in {shown(self._logs)}"

    def __enter__(self) -> "Runs":
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, get_renderable=self.table)
            self._live.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for row in self.rows:
            if row.state == RUNNING:
                row.look_for_end()
                if kind is None and row.state == RUNNING:
                    row.state = "failed"
        if self._live is not None:
            self._live.refresh()
            self._live.stop()
            self._live = None

    def say(self, line: str) -> None:
        # Beside the table, which says the same, only into a file.
        if self._live is None or not sys.stdout.isatty():
            print(line, flush=True)

    def beat(self, running: Mapping[Cell, float]) -> None:
        self.look(running)
        if self._live is not None:
            self._live.refresh()
        else:
            print(self.line(), flush=True)

    def look(self, running: Mapping[Cell, float]) -> None:
        """Learn from the folders what each run does."""
        self._running = running
        for cell, row in self._of.items():
            if cell in running:
                row.state, row.seconds = RUNNING, running[cell]
                row.now = read_progress(row.folder) or row.now
                row.loss = (row.now or {}).get("loss") or row.loss
            elif row.state == RUNNING:
                row.state = "failed"
                row.look_for_end()

    @property
    def left(self) -> float | None:
        """Estimate the seconds to the end; None before any run gives its own."""
        running = [row for row in self.rows if row.left is not None]
        whole = [row.seconds + (row.left or 0.0) for row in running]
        whole += [row.seconds for row in self.rows if row.ended and row.seconds]
        if not whole:
            return None
        lefts = [row.left or 0.0 for row in running]
        waiting = sum(not row.ended and row.state != RUNNING for row in self.rows)
        rest = sum(lefts) + waiting * sum(whole) / len(whole)
        return max([rest / self._at_a_time, *lefts])

    def counts(self) -> str:
        """Return how many runs are done, failed and left, and how long it takes."""
        done = sum(row.ended for row in self.rows)
        failed = sum(row.state == "failed" for row in self.rows)
        parts = [f"{done} of {len(self.rows)} done"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"about {duration(self.left)} left"] if self.left else []
        return ", ".join(parts)

    def line(self) -> str:
        """Return all of it in one line."""
        if self._headline is not None:
            return self._headline(self._running)
        running = [
            f"{row.name}: {row.does}{_loss(row, ' loss ')}"
            for row in self.rows
            if row.state == RUNNING
        ]
        return " | ".join([self.counts(), *running])

    def table(self) -> "Table":
        """Return as many rows as the terminal has room for, the running ones first."""
        from rich.table import Table
        from rich.text import Text

        title = self._headline(self._running) if self._headline else self.counts()
        room = max(3, self._console.height - _LINES)
        kept = set(_most_telling(self.rows, room))
        hidden = len(self.rows) - len(kept)
        caption = f"logs in {shown(self._logs)}" + (f"; {hidden} more runs" if hidden else "")
        table = Table(
            title=Text(title),
            caption=Text(caption),
            box=None,
            title_justify="left",
            caption_justify="left",
            pad_edge=False,
            padding=(0, 2, 0, 0),
        )
        for name, width in (("run", None), ("does", 20), ("loss", 6), ("left", 7), ("log", None)):
            right = "right" if name in ("loss", "left") else "left"
            table.add_column(
                name, min_width=width, justify=right, no_wrap=True, overflow="ellipsis"
            )
        for row in (row for number, row in enumerate(self.rows) if number in kept):
            table.add_row(
                Text(row.name),
                Text(row.does, style=_COLORS.get(row.state, "dim")),
                Text(_loss(row)),
                Text(duration(row.left) if row.left else ""),
                Text(row.log, style="dim"),
            )
        return table

    def stopped(self, command: str) -> list[str]:
        """Say after Ctrl-C what is done and left, and the command that resumes."""
        left = [row for row in self.rows if not row.ended]
        begun = [f"  {row.name} (saved at {row.does})" for row in left if row.state == RUNNING]
        done = len(self.rows) - len(left)
        return [
            f"stopped: {done} of {len(self.rows)} runs done, {len(left)} left",
            *begun,
            f"resume with: {command}",
        ]


def shown(path: Path) -> str:
    """Return a path as people type it from here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _loss(row: Row, label: str = "") -> str:
    return "" if row.loss is None else f"{label}{figure(row.loss)}"


def _most_telling(rows: Sequence[Row], room: int) -> list[int]:
    """Return the numbers of the rows to show: running, failed, the next ones, the last to end."""
    rank = {RUNNING: 0, "failed": 1, WAITING: 2}
    waiting = [n for n, row in enumerate(rows) if row.state == WAITING]
    later = set(waiting[max(2, room // 3) :])
    order = sorted(
        range(len(rows)), key=lambda n: (4 if n in later else rank.get(rows[n].state, 3), -n)
    )
    return order[:room]
