"""What a person sees of a run on the standard error: a bar on a terminal, plain lines in a pipe.

The bar shows the phase and its progress, the time since the start and the training time left, the
loss and its curve, tokens/s where there is room; a validation and a note leave a line above it. In
a pipe each row is one line, and after some silent seconds a line says what is being done. Both end
with a page of at most twenty lines.
"""

import math
import shlex
import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from normlab.metrics.spread import accuracy_interval, learned
from normlab.progress import PREPARING, TRAINING, Stage
from normlab.records.labels import one_line
from normlab.records.record import RunRecord, Score
from normlab.records.store import RECORD_FILE
from normlab.train.sinks.base import NO_SCORES, Row, RunInfo, Sink
from normlab.train.sinks.files import Pace

SPEED = "train/tokens_per_second"
# Said otherwise, or at the end, as the figures of probes are.
_NOT_IN_LINES = frozenset({"step", "tokens", "time/seconds"})
# The choices that a run's name leaves out and its cost follows from.
_SIZE = ("model", "recipe", "scale")
_SHORT = {"tokens": "tok"}  # in the bar
_DRAWN = 4  # times a second: the thread that draws shares the cores with training
_SILENT = 5.0  # seconds without a line in a pipe, more in a long run
_HEADLINES = 5
_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 12
_FIRST = (
    *("test/bleu", "test/chrf", "test/mlm_accuracy", "test/nsp_accuracy", "test/accuracy"),
    *("test/bits_per_character", "test/perplexity", "test/loss", "valid/loss"),
)
_COLORS = {"finished": "green", "diverged": "red", "interrupted": "yellow"}


class Sparkline:
    """The loss of all steps so far, as bars of equal numbers of steps; the last may have fewer."""

    def __init__(self, columns: int = _COLUMNS) -> None:
        self._means: list[float] = []
        self._columns, self._each, self._sum, self._count = columns, 1, 0.0, 0

    def add(self, loss: float) -> None:
        """Take the loss of one step."""
        if not math.isfinite(loss):
            return
        self._sum, self._count = self._sum + loss, self._count + 1
        if self._count == self._each:
            self._means.append(self._sum / self._count)
            self._sum, self._count = 0.0, 0
        if len(self._means) == 2 * self._columns:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(a + b) / 2 for a, b in pairs]
            self._each *= 2

    def __str__(self) -> str:
        """Draw it from the lowest to the highest loss that was seen."""
        means = self._means
        if len(means) > self._columns:
            whole = means if len(means) % 2 == 0 else means[:-1]
            pairs = zip(whole[::2], whole[1::2], strict=True)
            means = [(a + b) / 2 for a, b in pairs] + means[len(whole) :]
        if len(means) < 2:
            return ""
        low, high = min(means), max(means)
        scale = (len(_BARS) - 1) / (high - low or 1)
        return "".join(_BARS[round((mean - low) * scale)] for mean in means)


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
        self._started = self._said = self._drawn = time.monotonic()
        self._stage = Stage(PREPARING)
        self._pace, self._spark = Pace(), Sparkline()
        self._speed, self._unit = "", "tokens"
        self._samples: list[tuple[str, str, str]] = []

    def open(self, run: RunInfo) -> None:
        self._total, self._run_dir, self._unit = run.total_steps, run.run_dir, run.unit
        again = f", resumed at step {run.resumed_step}" if run.resumed_step else ""
        self._line(f"{run.run_id}{again}")
        if chosen := [f"{g}={run.choices[g]}" for g in _SIZE if run.choices.get(g)]:
            self._line(" ".join(chosen))

    def stage(self, stage: Stage) -> None:
        changed, self._stage = stage.phase != self._stage.phase, stage
        self._pace.see(stage)
        if stage.loss is not None:
            self._spark.add(stage.loss)
        now = time.monotonic()
        if self._rich:
            if changed or self._progress is None or now - self._drawn >= 1 / _DRAWN:
                self._drawn = now
                self._draw()
            return
        # A run of days does not fill a log with seconds.
        if now - self._said >= min(60.0, max(_SILENT, (now - self._started) / 60)):
            self._line(f"{stage}{self._loss('  ')}{self._left('  left ')}")

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        step = int(row["step"])
        results = {name: score.value for name, score in scores.items()}
        if SPEED in row:
            self._speed = f"{row[SPEED]:,.0f} {_SHORT.get(self._unit, self._unit)}/s"
        if not self._rich:
            values = {**self._worded(_figures(row)), **results}
            self._line(self._place(step) + _spaced(values) + self._left("  left "))
        elif results:
            self._line(f"step {step}" + _spaced(dict(islice(_by_rank(results), _HEADLINES))))

    def sample(self, source: str, reference: str, output: str) -> None:
        self._samples.append((source, reference, output))

    def note(self, text: str) -> None:
        self._line(text)

    def close(self, record: RunRecord | None) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        if record is None:
            return
        for line in _page(record, self._run_dir, self._samples):
            if self._rich:  # samples are read at a glance: they end at the edge
                self._console.print(line, overflow="ellipsis", no_wrap=True)
            else:
                self._console.print(line, soft_wrap=True)

    def _worded(self, values: Mapping[str, float]) -> dict[str, float]:
        """Name the speed by the run's unit."""
        said = {SPEED: SPEED.replace("tokens", self._unit)}
        return {said.get(name, name): value for name, value in values.items()}

    def _place(self, step: int) -> str:
        return f"step {step}" if self._total is None else f"step {step}/{self._total}"

    def _left(self, label: str) -> str:
        left = self._pace.left
        return "" if not left else label + duration(left)

    def _loss(self, gap: str = "") -> str:
        loss = self._stage.loss
        return "" if loss is None else f"{gap}loss {figure(loss)}"

    def _draw(self) -> None:
        if self._progress is None:
            self._progress = _progress(self._console)
            self._task = self._progress.add_task(
                str(self._stage), total=self._stage.total, elapsed="", left="", figures=""
            )
            self._progress.start()
        spark = "" if self._console.options.ascii_only else str(self._spark)
        training = self._stage.phase == TRAINING
        self._progress.update(
            self._task,
            description=str(self._stage),
            completed=self._stage.done,
            total=self._stage.total,
            elapsed=duration(time.monotonic() - self._started),
            left=self._left("left "),
            figures="  ".join(filter(None, (self._loss(), spark, self._speed))) if training else "",
        )

    def _line(self, text: str) -> None:
        # A pipe has no width to wrap at, and square brackets in a message are not markup.
        self._said = time.monotonic()
        lines = _folded(text, self._console.width) if self._rich else [text]
        self._console.print(Text("\n".join(lines)), soft_wrap=True)


def _folded(text: str, width: int) -> list[str]:
    """Fold a line between its parts, which two blanks separate, so that names stay whole."""
    lines = [""]
    for part in text.split("  "):
        longer = f"{lines[-1]}  {part}" if lines[-1] else part
        if lines[-1] and len(longer) > width:
            lines.append(f"  {part}")
        else:
            lines[-1] = longer
    return lines


def _progress(console: RichConsole) -> Progress:
    """Return a bar; on a narrow terminal the values next to it give way."""

    def text(field: str, width: int) -> TextColumn:
        return TextColumn(f"{{{field}}}", table_column=Column(min_width=width, no_wrap=True))

    return Progress(
        text("task.description", 18),
        BarColumn(bar_width=10),
        text("task.fields[elapsed]", 6),
        text("task.fields[left]", 11),
        TextColumn(
            "{task.fields[figures]}", table_column=Column(overflow="ellipsis", no_wrap=True)
        ),
        console=console,
        refresh_per_second=_DRAWN,
    )


def _page(record: RunRecord, folder: Path, samples: list[tuple[str, str, str]]) -> list[Text]:
    """Return the last page: outcome, main scores, samples, the place, what to type next."""
    outcome, budget = record.outcome, record.budget
    where = " in ".join(part for part in (outcome.reason, outcome.layer) if part)
    but = ", but no better than the untrained baseline," if learned(record) is False else ""
    lines = [
        Text.assemble(
            (outcome.status + but, f"bold {_COLORS.get(outcome.status, 'red')}"),
            f" at step {outcome.step:,}" + (f" ({where})" if where else ""),
            f" in {duration(budget.wall_seconds)}: {budget.tokens:,} {record.unit}, "
            f"{budget.tokens_per_second:,.0f} {record.unit}/s",
        )
    ]
    values = {name: score.value for name, score in record.main_scores.items()}
    for name, value in islice(_by_rank(values), _HEADLINES):
        floor = record.floors.get(name.removeprefix("test/")) if name.startswith("test/") else None
        known = "" if floor is None else f"  (untrained baseline {figure(floor)})"
        bounds = accuracy_interval(name, value, record.main_scores[name].n)
        between = f"  [{', '.join(map(figure, bounds))}]" if bounds else ""
        shown = (f"{figure(value):>10}", "bold")
        lines.append(Text.assemble(f"  {name:<24}", shown, between, known))
    for texts in samples[:3]:
        for label, text in zip(("source", "reference", "output"), texts, strict=True):
            lines.append(Text.assemble((f"  {label:<11}", "dim"), one_line(text)))
    lines.append(Text(f"record: {folder / RECORD_FILE}"))
    run = shlex.quote(str(folder))
    lines.append(Text("next:"))
    then = f"predict {run}" if samples else f"inspect {run}"
    lines += [Text(f"  normlab {what}") for what in (f"report {run}", then, "compare")]
    return lines


def _by_rank(values: Mapping[str, float]):
    """Yield names and finite values, those that a task is judged by first."""
    known = [name for name in _FIRST if name in values]
    for name in dict.fromkeys([*known, *sorted(values)]):
        if math.isfinite(values[name]):
            yield name, values[name]


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
