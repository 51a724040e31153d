"""The tables of `normlab study`: what the runs of a plan take, and what has ended."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from normlab.commands._terminal import complain, print_prose, print_table
from normlab.studies import Planned, Study, rate_name
from normlab.studies.costs import NOT_MEASURED, Costs, duration, estimate, memory, planned_updates
from normlab.studies.queue import Job
from normlab.studies.runs import Run

_NUMERIC = ("#", "runs", "to go", "updates", "ms/update", "memory", "hours")


class Item(NamedTuple):
    """A run of a plan: whether it has ended, and its cost if measured."""

    run: Run
    ended: bool
    cost: Mapping[str, Any] | None = None


class Table(NamedTuple):
    """The runs of a study that are asked for, and what they take.

    `at_a_time` is the number of runs at once; `unmeasured` says why costs are estimates of the
    study's file.
    """

    study: Study
    scale: str
    items: Sequence[Item]
    at_a_time: int
    unmeasured: str = NOT_MEASURED

    def show(self) -> None:
        """Print a head, one line per row, and notes."""
        left = [item for item in self.items if not item.ended]
        print_prose(head(self.study, self.scale, [each.run.planned for each in self.items], left))
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
        return estimate(item.run.config, item.cost)

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
            _range(known) if len(known) == len(counts) else "?",
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
        """Return data, time, memory, and what limits what these runs can show."""
        costs = [item.cost for item in self.items if item.cost is not None]
        size = self.study.scale(self.scale)
        named = dict.fromkeys(_named(cost["data"]) for cost in costs)
        notes = [f"data: {'; '.join(named) or size.data}"]
        tests = sorted({column.partition("/")[0] for column in self.study.columns})
        notes += [
            f"no {split} in these data: its columns stay empty, and its parts stay undecided"
            for split in tests
            if split.startswith("test_")
            and any(split not in cost["data"]["sizes"] for cost in costs)
        ]
        if left:
            seconds = sum(self.seconds(item) for item in left)
            text = f"time: {duration(seconds)} one run after the other"
            if self.at_a_time > 1:
                text += f", {duration(seconds / self.at_a_time)} with {self.at_a_time} at once"
            if not any(item.cost for item in left):
                text += f", by the estimate in the study's file; not measured: {self.unmeasured}"
            elif not all(item.cost for item in left):
                text += f"; ~ is an estimate of the study's file: {self.unmeasured}"
            notes.append(text)
        if costs:
            most, at = max(cost["memory_bytes"] for cost in costs), costs[0]["environment"]
            text = f"measured here ({at['device']}, {at['threads']} thread(s) per run, "
            notes.append(f"{text}{at['precision']}), memory at most {memory(most)} per run")
        if size.pilot:
            notes.append("a pilot: these runs never count as evidence")
        if self.study.baseline not in {item.run.planned.row for item in self.items}:
            notes.append(f"without {self.study.baseline}, the baseline, there are no differences")
        return notes


def measured(table: Table, costs: Costs, *, measure: bool) -> Table:
    """Return a table with what the runs to go cost; what is not known is measured if asked for."""
    missing = costs.missing([item.run for item in table.items if not item.ended])
    if missing and measure:
        costs.measure(missing, print_prose)
    found = [None if item.ended else costs.cost(item.run.config) for item in table.items]
    problems = [cost for cost in found if isinstance(cost, str)]
    items = [
        item if isinstance(cost, str) else item._replace(cost=cost)
        for item, cost in zip(table.items, found, strict=True)
    ]
    return table._replace(items=items, unmeasured=problems[0] if problems else "")


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
    order = ("train", "valid")
    splits = sorted(data["sizes"], key=lambda name: (name not in order, name))
    sizes = ", ".join(f"{split} {data['sizes'][split]:,}" for split in splits)
    return f"{data['label']} ({sizes}), source: {data['origin']}"


def print_tables(jobs: Sequence[Job], results: Path) -> None:
    """Print the table of each study by what has ended, with the published seeds that count."""
    from normlab.commands.compare import show_table
    from normlab.reports.published import read
    from normlab.reports.runs import Run as Made
    from normlab.reports.study_table import build

    for job in jobs:
        runs = [Made(run.planned, run.record()) for run in job.asked()]
        if job.published:
            try:
                there = read(results / job.study.name / job.scale)
            except ValueError as error:
                complain(f"{job.name}: the table is of the runs made here alone: {error}")
                there = []
            runs = [
                made
                for made in there
                if made.planned.seed in job.published
                and rate_name(made.planned.row, made.planned.point) in job.names
            ] + runs
        print()
        show_table(build(job.study, job.scale, runs), job.study.baseline)
