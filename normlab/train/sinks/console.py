"""What a person sees of a running job: a progress bar on a terminal, plain lines in a pipe.

Everything goes to the standard error, so that the standard output of a command stays its result.
On a terminal the bar shows step, time left, loss, tokens/s and the latest scores; an evaluation
and a note leave a line above it. In a pipe each row is one line. Both end with a small block that
holds the record's outcome and scores. The names `train/loss` and `train/tokens_per_second` are
the ones the bar shows; plain lines have each name of a row as it is.
"""

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from rich.console import Console as RichConsole
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table
from rich.text import Text

from normlab.records.record import RunRecord, Score
from normlab.records.store import RECORD_FILE
from normlab.train.sinks.base import NO_SCORES, Row, RunInfo, Sink

LOSS = "train/loss"
SPEED = "train/tokens_per_second"
# Said otherwise, or at the end, as the figures of probes are.
_NOT_IN_LINES = frozenset({"step", "tokens", "time/seconds"})
# The choices that a run's name leaves out and its cost follows from.
_SIZE = ("model", "recipe", "scale")


class Console(Sink):
    """Show a run's progress on the standard error."""

    def __init__(
        self,
        *,
        style: Literal["auto", "terminal", "plain"] = "auto",
        console: RichConsole | None = None,
    ) -> None:
        """Choose the view by what the standard error is, or by `style`; `console` is for tests."""
        self._console = console or RichConsole(file=sys.stderr, highlight=False)
        self._rich = self._console.is_terminal if style == "auto" else style == "terminal"
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._total: int | None = None
        self._run_dir = Path()
        self._first: tuple[int, float] | None = None
        self._shown: dict[str, str] = {}

    def open(self, run: RunInfo) -> None:
        """Name the run and start the bar."""
        self._total, self._run_dir, self._first = run.total_steps, run.run_dir, None
        again = f", resumed at step {run.resumed_step}" if run.resumed_step else ""
        self._line(f"{run.run_id}{again}")
        if chosen := [f"{g}={run.choices[g]}" for g in _SIZE if run.choices.get(g)]:
            self._line(" ".join(chosen))
        if self._rich:
            # The widest that the place will get, so that the bar does not move about.
            widest = self._place(run.total_steps or 999_999)
            self._progress = _progress(self._console, widest)
            self._task = self._progress.add_task(
                self._place(run.resumed_step),
                total=run.total_steps,
                completed=run.resumed_step,
                figures="",
                left="",
            )
            self._progress.start()

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        """Move the bar, or print the row; scores always leave a line."""
        step = int(row["step"])
        results = {name: score.value for name, score in scores.items()}
        if self._progress is None:
            self._line(
                self._place(step)
                + _spaced({**_figures(row), **results})
                + self._left(step, "  left ")
            )
            return
        self._show(row, results)
        self._progress.update(
            self._task,
            description=self._place(step),
            completed=step,
            figures="  ".join(self._shown.values()),
            left=self._left(step, "left "),
        )
        if results:
            self._line(f"step {step}" + _spaced(results))

    def _show(self, row: Row, results: Mapping[str, float]) -> None:
        """Keep the latest figures of the bar; a row need not have all of them."""
        if LOSS in row:
            self._shown[LOSS] = f"loss {figure(row[LOSS])}"
        for name, value in results.items():
            self._shown[name] = f"{name} {figure(value)}"
        if SPEED in row:
            self._shown[SPEED] = f"{row[SPEED]:,.0f} tok/s"

    def _place(self, step: int) -> str:
        return f"step {step}" if self._total is None else f"step {step}/{self._total}"

    def _left(self, step: int, label: str) -> str:
        """Estimate the time left from all steps since the first row, evaluations included.

        What comes before the first row (compiling, the start of W&B) does not come again.
        """
        now = time.monotonic()
        self._first = self._first or (step, now)
        done, elapsed = step - self._first[0], now - self._first[1]
        if self._total is None or done <= 0 or step >= self._total:
            return ""
        return label + duration(elapsed / done * (self._total - step))

    def note(self, text: str) -> None:
        """Print the line, above the bar if there is one."""
        self._line(text)

    def close(self, record: RunRecord | None) -> None:
        """Stop the bar and show the record as a small block."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        if record is None:
            return
        lines = [*_lines(record), ("record", str(self._run_dir / RECORD_FILE), "")]
        if self._rich:
            self._console.print(Panel(_block(lines), title=Text(record.run_id), expand=False))
        else:
            for label, value, detail in lines:
                self._line(f"{label}: {value}" + (f"  ({detail})" if detail else ""))

    def _line(self, text: str) -> None:
        # A pipe has no width to wrap at, and square brackets in a message are not markup.
        self._console.print(Text(text), soft_wrap=True)


def _progress(console: RichConsole, place: str) -> Progress:
    # On a narrow terminal the figures are what gives way. Two redraws a second: the drawing thread
    # shares the cores with training.
    return Progress(
        TextColumn("{task.description}", table_column=Column(min_width=len(place), no_wrap=True)),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[left]}", table_column=Column(min_width=12, no_wrap=True)),
        TextColumn(
            "{task.fields[figures]}", table_column=Column(overflow="ellipsis", no_wrap=True)
        ),
        console=console,
        refresh_per_second=2,
    )


def _block(lines: list[tuple[str, str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    for label, value, detail in lines:
        table.add_row(Text(label), Text(value), Text(detail, style="dim"))
    return table


def _lines(record: RunRecord) -> list[tuple[str, str, str]]:
    """Say what a record holds for a first look: label, value, detail."""
    outcome, budget = record.outcome, record.budget
    where = " in ".join(part for part in (outcome.reason, outcome.layer) if part)
    lines = [("outcome", f"{outcome.status} at step {outcome.step}", where)]
    lines += [
        (name, figure(score.value), score.signature or "")
        for name, score in sorted(record.main_scores.items())
    ]
    lines += [
        (name, figure(value), "")
        for name, value in sorted(record.stability.items())
        if name.count("/") == 2  # of the whole model; those of its places are in the record
    ]
    lines += [
        ("tokens", f"{budget.tokens:,}", f"{budget.tokens_per_second:,.0f} tokens/s"),
        ("time", duration(budget.wall_seconds), ""),
    ]
    return lines


def _figures(row: Row) -> dict[str, float | int]:
    return {
        name: value
        for name, value in row.items()
        if name not in _NOT_IN_LINES and not name.startswith("stability/")
    }


def _spaced(values: Mapping[str, float | int]) -> str:
    return "".join(f"  {name} {figure(value)}" for name, value in values.items())


def figure(value: float | int) -> str:
    """Write a number for people: four significant digits, from 1,000 on all whole digits."""
    if not math.isfinite(value):
        return str(float(value))
    whole = abs(value) >= 1000 or value == int(value)
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def duration(seconds: float | int) -> str:
    """Write a time as `42s`, `3m 05s` or `2h 07m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
