"""The tables of `normlab study`: what the runs of a plan take, and what has ended."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._terminal import complain, print_note, print_prose, print_table
from normlab.studies import Planned, Study, rate_name
from normlab.studies.costs import (
    NOT_MEASURED,
    Costs,
    duration,
    estimate,
    makespan,
    memory,
    planned_updates,
    updates,
)
from normlab.studies.queue import Job
from normlab.studies.runs import Run

if TYPE_CHECKING:
    from normlab.reports.table import Table as StudyTable

_NUMERIC = ("#", "runs", "to go", "updates", "ms/update", "memory", "hours")
_BUSY = 0.85  # a smaller share of the processor is worth a note


@dataclass(frozen=True)
class Item:
    """A run of a plan: whether it has ended, and its cost if measured."""

    run: Run
    ended: bool
    cost: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Table:
    """The runs of a study that are asked for, and what they take.

    `at_a_time` is the number of runs at once; `unmeasured` says why costs are estimates of the
    study's file.
    """

    study: Study
    scale: str
    items: Sequence[Item]
    at_a_time: int
    unmeasured: str | None = None

    def show(self) -> None:
        """Print a head, one line per row, and notes."""
        left = [item for item in self.items if not item.ended]
        planned = [item.run.planned for item in self.items]
        print_prose(head(self.study, self.scale, planned, left))
        names = self.study.scale(self.scale).rows
        by_row: dict[str, list[Item]] = {}
        for item in self.items:
            by_row.setdefault(item.run.planned.row, []).append(item)
        rows = [self._row(names.index(name) + 1, name, own) for name, own in by_row.items()]
        if len(rows) > 1:
            counts = [str(len(self.items)), str(len(left))]
            rows.append(["", "all", *counts, "", "", "", self._hours(left)])
        columns = ["#", "row", *_NUMERIC[1:]]
        print_table(columns, rows, notes=self._notes(left), numeric=_NUMERIC, labels=2)

    def seconds(self, item: Item) -> float:
        """Return how long a run takes, as measured, else by the estimate in the file."""
        if item.cost is None:
            return 60 * self.study.scale(self.scale).minutes
        return estimate(item.run.config, item.cost).seconds

    def seconds_of(self, run: Run) -> float:
        """Return how long a run takes, as others of its row and point do."""
        at = run.planned.row, run.planned.point
        same = [each for each in self.items if (each.run.planned.row, each.run.planned.point) == at]
        return self.seconds(next((item for item in same if item.cost is not None), same[0]))

    def _row(self, number: int, name: str, members: Sequence[Item]) -> list[str]:
        left = [item for item in members if not item.ended]
        costs = [item.cost for item in members if item.cost is not None]
        counts = [planned_updates(item.run.config, item.cost) for item in members]
        known = [count for count in counts if count is not None]
        return [
            str(number),
            name,
            str(len(members)),
            str(len(left)),
            _range(known) if len(known) == len(counts) else updates(None),
            _range([1e3 * cost["update_seconds"] for cost in costs]) or "-",
            memory(max(cost["memory_bytes"] for cost in costs)) if costs else "-",
            self._hours(left),
        ]

    def _hours(self, items: Sequence[Item]) -> str:
        """Return the hours of runs one after the other, marked if one is not measured."""
        if items and all(item.cost is None for item in self.items if not item.ended):
            return "-"
        hours = sum(self.seconds(item) for item in items) / 3600
        mark = "~" if any(item.cost is None for item in items) else ""
        return mark + (f"{hours:.0f}" if hours >= 100 else f"{hours:.2f}")

    def _notes(self, left: Sequence[Item]) -> list[str]:
        costs = [item.cost for item in self.items if item.cost is not None]
        notes = [*self._data(costs), *(self._time(left) if left else [])]
        if costs:
            most = max(cost["memory_bytes"] for cost in costs)
            of = "GPU" if costs[0]["environment"]["device_type"] == "cuda" else "process"
            note = f"memory: of the {of}, at most {memory(most)} per run"
            several = f", {memory(most * self.at_a_time)} for {self.at_a_time} at a time"
            notes.append(note + (several if self.at_a_time > 1 and of == "process" else ""))
        if any(item.run.config["validate"]["patience"] is not None for item in self.items):
            notes.append("updates: a maximum; validate.patience may end a run before")
        size, baseline = self.study.scale(self.scale), self.study.baseline
        if size.pilot:
            notes.append("a pilot: these runs never count as evidence")
        if baseline not in {item.run.planned.row for item in self.items}:
            notes.append(
                f"without {baseline}, which the others are compared with: the table will have no "
                "differences"
            )
        axes = "".join(f"; {axis}={next(iter(values))}" for axis, values in size.grid.items())
        return [*notes, f"for less: rows=1,2 or rows=NAME,NAME; seeds=1 or seeds=1-3{axes}"]

    def _data(self, costs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Name the data, and the test sets of the study's columns that they lack."""
        named = dict.fromkeys(_named(cost["data"]) for cost in costs)
        tests = sorted({column.partition("/")[0] for column in self.study.columns})
        lacking = [
            f"no {split} in these data: its columns stay empty, and its parts stay undecided"
            for split in tests
            if split.startswith("test_")
            and any(split not in cost["data"]["sizes"] for cost in costs)
        ]
        return [f"data: {'; '.join(named) or self.study.scale(self.scale).data}", *lacking]

    def _time(self, left: Sequence[Item]) -> list[str]:
        seconds = [self.seconds(item) for item in left]
        text = f"time: {duration(sum(seconds))} one run after the other"
        costs = [item.cost for item in left if item.cost is not None]
        if not costs:
            return [
                f"time: not measured, {self.unmeasured}; by the estimate in the study's file, for "
                f"the machine that the scale is meant for: {text.removeprefix('time: ')}"
            ]
        if self.at_a_time > 1:
            text += f", {duration(makespan(seconds, self.at_a_time))} with {self.at_a_time} at once"
        at = costs[0]["environment"]
        text += (
            f"; measured by trial runs on this machine ({at['device']}, {at['threads']} thread(s) "
            f"per run, {at['precision']})"
        )
        if len(costs) < len(left):
            text += f"; ~ is an estimate of the study's file: {self.unmeasured}"
        share = min(cost["busy_share"] for cost in costs)
        if share >= _BUSY:
            return [text]
        shares = [1 if item.cost is None else item.cost["busy_share"] for item in left]
        alone = sum(each * busy for each, busy in zip(seconds, shares, strict=True))
        return [
            text,
            f"other programs took up to {1 - share:.0%} of the time of the trial runs: alone it "
            f"would be about {duration(alone)} one run after the other",
        ]


def measured(table: Table, costs: Costs, problem: str | None, until: float | None) -> Table:
    """Return a table with what the runs to go cost.

    What is not known is measured, unless that would end after `until`, a time of
    `time.monotonic`; None measures nothing. A `problem` says why the data are not available.
    """
    if problem is not None:
        return replace(table, unmeasured="the data are not available")
    missing = costs.missing([item.run for item in table.items if not item.ended])
    if missing and until is not None and time.monotonic() < until:
        costs.measure(missing, print_prose, until)
    found = [None if item.ended else costs.cost(item.run.config) for item in table.items]
    problems = [cost for cost in found if isinstance(cost, str)]
    known = [None if isinstance(cost, str) else cost for cost in found]
    items = [replace(item, cost=cost) for item, cost in zip(table.items, known, strict=True)]
    why = NOT_MEASURED if until is None else problems[0] if problems else None
    return replace(table, items=items, unmeasured=why if problems else None)


def head(study: Study, scale: str, planned: Sequence[Planned], left: Sequence[object]) -> str:
    """Return one line: how many runs of what, and how many are to go."""
    rows, points = ({getattr(run, name) for run in planned} for name in ("row", "point"))
    seeds = list(dict.fromkeys(run.seed for run in planned))
    parts = [f"{len(rows)} row" + ("" if len(rows) == 1 else "s")]
    parts += [f"{len(points)} points"] if len(points) > 1 else []
    parts.append(f"seed{'s' if len(seeds) > 1 else ''} {' '.join(map(str, seeds))}")
    return (
        f"{study.name} at scale={scale}: {len(planned)} runs ({', '.join(parts)}), "
        f"{len(planned) - len(left)} ended, {len(left)} to go"
    )


def _range(values: Sequence[float | int]) -> str:
    """Return the least and the most, rounded, or the one there is; "" for none."""
    shown = list(dict.fromkeys(f"{value:,.0f}" for value in sorted(values)))
    return "-".join([shown[0], *shown[-1:]][: len(shown)]) if shown else ""


def _named(data: Mapping[str, Any]) -> str:
    first = {"train": 0, "valid": 1}
    ordered = sorted(data["sizes"].items(), key=lambda item: (first.get(item[0], 2), item[0]))
    sizes = ", ".join(f"{split} {count:,}" for split, count in ordered)
    return f"{data['label']} ({sizes}), source: {data['origin']}"


def print_tables(jobs: Sequence[Job], results: Path) -> None:
    """Print the table of each study by what has ended, with the published seeds that count."""
    from normlab.reports.published import read
    from normlab.reports.study_table import build

    for job in jobs:
        runs = [(run.planned, run.record()) for run in job.asked()]
        if job.published:
            try:
                _, there = read(results / job.study.name / job.scale)
            except ValueError as error:
                complain(f"{job.name}: the table is of the runs made here alone: {error}")
                there = []
            runs = [
                (planned, record)
                for planned, record in there
                if planned.seed in job.published
                and rate_name(planned.row, planned.point) in job.names
            ] + runs
        print()
        _print(build(job.study, job.scale, runs), job.study.baseline)


def _print(table: "StudyTable", baseline: str) -> None:
    """Print the scores of a table, then the differences to the baseline, then its notes.

    What Markdown has in bold bears a star.
    """
    from normlab.reports.study_table import BOLD
    from normlab.reports.table import header, lines

    scores: list[list[str]] = []
    gaps: list[list[str]] = []
    for line in lines(table):
        names = [line.name, line.point or "-"]
        figures = [
            "; ".join(filter(None, (f"{each.value}{' *' if each.best else ''}", each.document)))
            for each in line.scores
        ]
        scores.append([*names, *figures, "; ".join(line.stability), *line.apart])
        if any(each.difference for each in line.scores):
            gaps.append([*names, *(each.difference or "-" for each in line.scores)])
    starred = {BOLD: BOLD.replace("bold", "*", 1)}
    notes = [starred.get(note, note) for note in table.notes]
    numeric = table.columns
    print_note(table.title)
    print_table(header(table), scores, numeric=numeric, labels=2, notes=[] if gaps else notes)
    if gaps:
        print()
        print_note(f"difference to {baseline} at the same point, paired by seed")
        columns = ["setting", "at", *numeric]
        print_table(columns, gaps, numeric=numeric, labels=2, notes=notes, whole=True)
