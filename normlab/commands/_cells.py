"""What the cells of a sweep do: a live table on a terminal, a plain line now and then in a pipe.

Cells are processes of their own, here or elsewhere: what each does is read from its run folder.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.records.store import RECORD_FILE, read_progress, read_record
from normlab.train.sinks.console import duration, figure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_IN_A_PIPE = 10.0  # seconds between two lines
_LINES = 8  # of the terminal that are not the table's
WAITING, RUNNING, PRUNED = "waiting", "running", "pruned"
_COLORS = {"finished": "green", "diverged": "red", "failed": "red", RUNNING: "cyan"}


@dataclass
class Row:
    """A cell: its name, its run folder, its log, and what is known of it.

    `over` tells whether it was stopped for good before its run ended, as a pruned trial is.
    """

    name: str
    folder: Path
    log: str
    over: Callable[[], bool] = lambda: False
    state: str = WAITING
    now: Mapping[str, Any] | None = None
    loss: float | None = None
    seconds: float = 0.0

    @property
    def ended(self) -> bool:
        """Tell whether there is nothing left to do."""
        return self.state in ("finished", "diverged", "failed", PRUNED)

    @property
    def place(self) -> str:
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
        """Take what the record says, if the run has ended."""
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


class Cells:
    """The cells of a sweep, shown while they are carried out.

    `headline` makes the line above the table, from the seconds that each cell at work has taken;
    None counts what is done. `every` are the seconds between two lines in a pipe.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        at_a_time: int,
        logs: Path,
        total: int | None = None,
        headline: Callable[[Mapping[int, float]], str] | None = None,
        every: float = _IN_A_PIPE,
        console: "Console | None" = None,
    ) -> None:
        """Take the rows in the order of their numbers; `console` is for tests."""
        from rich.console import Console

        self.rows = list(rows)
        self.at_a_time, self.logs, self._total = at_a_time, logs, total
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._live: Any = None
        self._headline, self._every = headline, every
        self._said, self._at_work = -math.inf, dict[int, float]()
        for row in self.rows:
            row.look_for_end()
        self.before = sum(row.ended for row in self.rows)

    @property
    def total(self) -> int:
        """Return how many cells there are."""
        return max(self._total or 0, len(self.rows))

    @property
    def beat_every(self) -> float:
        """Return how often `beat` wants to be called."""
        return 1.0 if self._console.is_terminal else self._every

    def begin(self, later: int = 0) -> str:
        """Say what there is to do; `later` of the cells only where parts are open before them."""
        done = f", {self.before} of them done before" if self.before else ""
        more = f"; {later} more if parts are open after them" if later else ""
        cells = f"{self.total - later} cells{done}, {self.at_a_time} at a time{more}"
        return f"{cells}; logs in {shown(self.logs)}"

    def __enter__(self) -> "Cells":
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

    def tell(self, line: str) -> None:
        """Print a line of the sweep; beside the table, which says the same, only to a file."""
        if self._live is None or not sys.stdout.isatty():
            print(line, flush=True)

    def beat(self, at_work: Mapping[int, float]) -> None:
        """Show what the cells do now; `at_work` are the seconds of each that is running."""
        self.look(at_work)
        if self._live is not None:
            self._live.refresh()
        elif time.monotonic() >= self._said + self._every:
            self._said = time.monotonic()
            print(self.line(), flush=True)

    def look(self, at_work: Mapping[int, float]) -> None:
        """Learn what each cell does, from its run folder."""
        self._at_work = dict(at_work)
        for number, row in enumerate(self.rows):
            if number in at_work:
                row.state, row.seconds = RUNNING, at_work[number]
                row.now = read_progress(row.folder) or row.now
                row.loss = (row.now or {}).get("loss") or row.loss
            elif row.state == RUNNING:
                row.state = "failed"
                row.look_for_end()

    @property
    def left(self) -> float | None:
        """Estimate the seconds to the end of the sweep; None before any cell says its own."""
        running = [row for row in self.rows if row.left is not None]
        whole = [row.seconds + (row.left or 0.0) for row in running]
        whole += [row.seconds for row in self.rows if row.ended and row.seconds]
        if not whole:
            return None
        lefts = [row.left or 0.0 for row in running]
        waiting = self.total - sum(row.ended or row.state == RUNNING for row in self.rows)
        rest = sum(lefts) + waiting * sum(whole) / len(whole)
        return max([rest / self.at_a_time, *lefts])

    def counts(self) -> str:
        """Return how many cells are done, failed and left, and how long it takes."""
        done = sum(row.ended for row in self.rows)
        failed = sum(row.state == "failed" for row in self.rows)
        parts = [f"{done} of {self.total} done"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"about {duration(self.left)} left"] if self.left else []
        return ", ".join(parts)

    def line(self) -> str:
        """Return all of it in one line."""
        if self._headline is not None:
            return self._headline(self._at_work)
        running = [
            f"{row.name}: {row.place}{_loss(row, ' loss ')}"
            for row in self.rows
            if row.state == RUNNING
        ]
        return " | ".join([self.counts(), *running])

    def table(self) -> "Table":
        """Return the table: as many rows as the terminal has room for, those at work first."""
        from rich.table import Table
        from rich.text import Text

        title = self._headline(self._at_work) if self._headline else self.counts()
        room = max(3, self._console.height - _LINES)
        kept = set(_most_telling(self.rows, room))
        hidden = len(self.rows) - len(kept)
        caption = f"logs in {shown(self.logs)}" + (f"; {hidden} more cells" if hidden else "")
        table = Table(
            title=Text(title),
            caption=Text(caption),
            box=None,
            title_justify="left",
            caption_justify="left",
            pad_edge=False,
            padding=(0, 2, 0, 0),
        )
        for name, width in (("cell", None), ("does", 20), ("loss", 6), ("left", 7), ("log", None)):
            right = "right" if name in ("loss", "left") else "left"
            table.add_column(
                name, min_width=width, justify=right, no_wrap=True, overflow="ellipsis"
            )
        for number, row in enumerate(self.rows):
            if number not in kept:
                continue
            left = duration(row.left) if row.left else ""
            table.add_row(
                Text(row.name),
                Text(row.place, style=_COLORS.get(row.state, "dim")),
                Text(_loss(row)),
                Text(left),
                Text(row.log, style="dim"),
            )
        return table

    def stopped(self, command: str, *, jobs: Sequence[str] | None = None) -> list[str]:
        """Say after Ctrl-C what is done, what is left, and the command that goes on.

        `jobs` are given where another launcher carried them out: those of Slurm, which nobody has
        stopped, none of Ray, which has killed its workers.
        """
        left = [row for row in self.rows if not row.ended]
        at = "saved at" if jobs is None else "at"
        begun = [f"{row.name} ({at} {row.place})" for row in left if row.state == RUNNING]
        lines = [f"stopped: {self.total - len(left)} of {self.total} cells done, {len(left)} left"]
        lines += [f"  {name}" for name in begun]
        if jobs:
            lines.append(
                f"their jobs go on in Slurm: squeue lists them, scancel {' '.join(jobs)} ends them"
            )
        return [*lines, f"{'then ' * bool(jobs)}it goes on with: {command}"]


def shown(path: Path) -> str:
    """Return a path as people type it from here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def short_names(cells: Sequence[Sequence[str]]) -> list[str]:
    """Name each cell by the overrides that not all of them have."""
    common = set(cells[0]).intersection(*cells[1:]) if len(cells) > 1 else set[str]()
    return [" ".join(text for text in cell if text not in common) for cell in cells]


def _loss(row: Row, label: str = "") -> str:
    return "" if row.loss is None else f"{label}{figure(row.loss)}"


def _most_telling(rows: Sequence[Row], room: int) -> list[int]:
    """Return the numbers of the rows to show: at work, failed, the next ones, the last to end."""
    rank = {RUNNING: 0, "failed": 1, WAITING: 2}
    waiting = [n for n, row in enumerate(rows) if row.state == WAITING]
    later = set(waiting[max(2, room // 3) :])
    order = sorted(
        range(len(rows)), key=lambda n: (4 if n in later else rank.get(rows[n].state, 3), -n)
    )
    return order[:room]
