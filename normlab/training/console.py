"""A run's output on standard error: a progress bar on a terminal, plain lines in a pipe.

The bar shows the phase and its progress, the time left (see `Pace`), the loss and the speed. Each
validation and each note is printed as a line above it. In a pipe, each row is one short line, and a
status line follows if nothing was printed for some seconds. Not all values are printed;
`metrics.jsonl` has them. Both styles end with a summary of at most twelve lines.
"""

import math
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from normlab.formats import duration, estimated, short_number
from normlab.metrics.baseline import learning_problem
from normlab.records.record import MAIN_SCORES, RunRecord, Score
from normlab.records.store import HYPOTHESES_FILE, RECORD_FILE, run_id
from normlab.stages import TRAINING, Pace, Stage
from normlab.training.sinks import NO_SCORES, Notice, Row, RunInfo, Sink

LOSS, SPEED = "train/loss", "train/tokens_per_second"
_SIZE = ("model", "recipe", "scale")  # options to show that are not in the run's name
_SILENT = 5.0  # seconds without output before a status line in a pipe; longer in a long run
_HEADLINES = 5
_FIRST = (*(f"test/{name}" for name in MAIN_SCORES), "valid/loss")
_COLORS = {"finished": "green", "diverged": "red", "interrupted": "yellow"}


class Console(Sink):
    """Show a run's progress on standard error."""

    def __init__(
        self,
        *,
        style: Literal["auto", "terminal", "plain"] = "auto",
        console: RichConsole | None = None,
    ) -> None:
        """Choose the style. `auto` draws a bar if stderr is a terminal. Tests pass a `console`."""
        self._console = console or RichConsole(file=sys.stderr, highlight=False)
        self._rich = self._console.is_terminal if style == "auto" else style == "terminal"
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._run: RunInfo | None = None
        self._started = self._said = time.monotonic()
        self._pace, self._loss, self._speed = Pace(), "", ""

    def open(self, run: RunInfo) -> None:
        self._run = run
        resumed = f", resumed at step {run.resumed_step}" if run.resumed_step else ""
        self._line(f"{run_id(run.config)}{resumed}")
        if chosen := [f"{g}={run.choices[g]}" for g in _SIZE if run.choices.get(g)]:
            self._line(" ".join(chosen))

    def stage(self, stage: Stage) -> None:
        self._pace.see(stage)
        self._loss = "" if stage.loss is None else f"loss {short_number(stage.loss)}"
        if self._rich:
            self._draw(stage)
            return
        now = time.monotonic()
        # Print fewer lines in a long run, so that days of training do not fill the log.
        if now - self._said >= min(60.0, max(_SILENT, (now - self._started) / 60)):
            self._line(_joined(str(stage), self._left))  # the last row's line has the loss

    def log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        assert self._run is not None, "log before open"
        step, unit, total = int(row["step"]), self._run.unit, self._run.config["budget"]["steps"]
        values = {name: score.value for name, score in scores.items()}
        if SPEED in row:
            self._speed = f"{short_number(row[SPEED])} {'tok' if unit == 'tokens' else unit}/s"
        if self._rich and not values:  # the bar shows the other values
            return
        main = {name: x for name, x in values.items() if name.split("/")[-1] in MAIN_SCORES}
        shown = dict(islice(_by_rank(main or values), _HEADLINES))  # a line of 80 columns
        if LOSS in row:
            shown[LOSS] = row[LOSS]
        texts = [f"{name} {short_number(value)}" for name, value in shown.items()]
        place = f"step {step}" if total is None else f"step {step}/{total}"
        self._line(_joined(place, *texts, self._speed if SPEED in row else "", self._left))

    def note(self, notice: Notice) -> None:
        self._line(str(notice))

    def _line(self, text: str) -> None:
        self._said = time.monotonic()
        self._console.print(Text(text), soft_wrap=not self._rich)  # a pipe has no width to wrap at

    def close(self, record: RunRecord | None) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        if record is None or self._run is None:
            return
        lines = _page(record, self._run.run_dir)
        if self._rich:
            lines[:1] = lines[0].wrap(self._console, self._console.width)
        self._console.print(*lines, sep="\n", soft_wrap=True)  # one write, as a pipe may be shared

    @property
    def _left(self) -> str:
        return f"about {estimated(self._pace.left)} left" if self._pace.left else ""

    def _draw(self, stage: Stage) -> None:
        if self._progress is None:
            narrow = Column(overflow="ellipsis", no_wrap=True)  # shrinks on a narrow terminal
            self._progress = Progress(
                TextColumn("{task.description}", table_column=Column(min_width=18, no_wrap=True)),
                BarColumn(bar_width=6),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}", table_column=Column(min_width=11, no_wrap=True)),
                TextColumn("{task.fields[figures]}", table_column=narrow),
                console=self._console,
                refresh_per_second=4,  # drawing takes CPU time away from training
            )
            self._task = self._progress.add_task(str(stage), left="", figures="")
            self._progress.start()
        figures = (self._loss, self._speed) if stage.phase == TRAINING else ()
        self._progress.update(
            self._task,
            description=str(stage),
            completed=stage.done,
            total=stage.total,
            left=self._left,
            figures=_joined(*figures),
        )


def _joined(*parts: str) -> str:
    return "  ".join(filter(None, parts))


def _page(record: RunRecord, folder: Path) -> list[Text]:
    """Return the summary: outcome, main scores, the record's path, and commands to run next."""
    outcome, budget, unit = record.outcome, record.budget, record.unit
    lines = [
        Text.assemble(
            (outcome.status, f"bold {_COLORS.get(outcome.status, 'red')}"),
            f" {outcome.ending}, in {duration(budget.wall_seconds)}: {budget.tokens:,} {unit}, "
            f"{budget.tokens_per_second:,.0f} {unit}/s",
        )
    ]
    if why := learning_problem(record):
        lines.append(Text(f"but {why}", "bold"))
    values = {name: score.value for name, score in record.main_scores.items()}
    tested = {name: value for name, value in values.items() if name.startswith("test/")}
    shown = tested or values  # validations were already printed
    for name, value in islice(_by_rank(shown), _HEADLINES):
        floor = record.floors.get(name.removeprefix("test/")) if name in tested else None
        known = [] if floor is None else [f"untrained baseline {short_number(floor)}"]
        if name.endswith("/loss") and record.label_smoothing:
            known.append(f"smoothing {record.label_smoothing:g}")  # fits 80 columns
        more = f"  ({', '.join(known)})" if known else ""
        lines.append(Text.assemble(f"  {name:<24}", (f"{short_number(value):>10}", "bold"), more))
    if record.config.get("observe", {}).get("debug"):  # no record is kept
        return lines
    lines.append(Text(f"record: {folder / RECORD_FILE}"))
    run = shlex.quote(str(folder))
    translates = (folder / HYPOTHESES_FILE).is_file()
    then = f"predict {run} < FILE" if translates else f"inspect {run}"
    root = folder.parents[1]
    compare = "compare" if root == Path("runs") else f"compare {shlex.quote(str(root))}"
    lines.append(Text("next:"))
    lines += [Text(f"  normlab {what}") for what in (f"report {run}", then, compare)]
    return lines


def _by_rank(values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the finite values by name, main scores first."""
    known = [name for name in _FIRST if name in values]
    for name in dict.fromkeys([*known, *sorted(values)]):
        if math.isfinite(values[name]):
            yield name, values[name]
