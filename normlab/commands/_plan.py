"""What a study will take, row by row: runs, updates, data, memory, hours."""

import heapq
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from normlab.commands._estimate import duration, estimate, memory, planned_updates, updates
from normlab.commands._probes import Probes, Subject
from normlab.commands._terminal import print_prose, print_table
from normlab.studies import Planned, Study

_NUMERIC = ("#", "runs", "to go", "updates", "ms/update", "memory", "hours")
_START = 10.0  # seconds that a probe takes to begin and to test
_BUSY = 0.85  # a smaller share of the processor is told of


@dataclass(frozen=True)
class Item:
    """A run of a plan: its config, whether it has ended, its cost, measured or None."""

    run: Planned
    config: Mapping[str, Any]
    ended: bool
    cost: Mapping[str, Any] | None


@dataclass(frozen=True)
class Plan:
    """The runs of a study that are asked for, and what they take.

    `at_a_time` is the number of runs at once; `unmeasured` says why costs are typed in.
    """

    study: Study
    scale: str
    items: Sequence[Item]
    at_a_time: int
    unmeasured: str | None = None

    def show(self) -> None:
        """Print the plan: a head, a line a row, what the figures are."""
        print_prose(head(self.study, self.scale, [i.run for i in self.items], self._left()))
        rows = self._rows()
        if len(rows) > 1:
            left = self._left()
            rows.append(
                ["", "all", str(len(self.items)), str(len(left)), "", "", "", self._hours(left)]
            )
        columns = ["#", "row", *_NUMERIC[1:]]
        print_table(columns, rows, notes=self._notes(), numeric=_NUMERIC, labels=2)

    def seconds(self, item: Item) -> float:
        """Return how long a run takes, as measured, else as typed in."""
        if item.cost is None:
            return 60 * self.study.scale(self.scale).minutes
        return estimate(item.config, item.cost).seconds

    def _left(self) -> list[Item]:
        return [item for item in self.items if not item.ended]

    def _rows(self) -> list[list[str]]:
        names = self.study.scale(self.scale).rows
        by_row: dict[str, list[Item]] = {}
        for item in self.items:
            by_row.setdefault(item.run.row, []).append(item)
        return [self._row(names.index(name) + 1, name, members) for name, members in by_row.items()]

    def _row(self, number: int, name: str, members: Sequence[Item]) -> list[str]:
        left = [item for item in members if not item.ended]
        costs = [item.cost for item in members if item.cost is not None]
        counts = [planned_updates(item.config, item.cost) for item in members]
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
        """Return the hours of runs one after the other, with a mark where one is typed in."""
        if items and not any(item.cost is not None for item in self._left()):
            return "-"
        hours = sum(self.seconds(item) for item in items) / 3600
        mark = "~" if any(item.cost is None for item in items) else ""
        return mark + (f"{hours:.0f}" if hours >= 100 else f"{hours:.2f}")

    def _notes(self) -> list[str]:
        left = self._left()
        notes = [self._data(), *self._lacking(), *self._time(left)]
        costs = [item.cost for item in self.items if item.cost is not None]
        if costs:
            most = max(cost["memory_bytes"] for cost in costs)
            of = "GPU" if costs[0]["environment"]["device_type"] == "cuda" else "process"
            note = f"memory: of the {of}, at most {memory(most)} a run"
            several = f", {memory(most * self.at_a_time)} for {self.at_a_time} at a time"
            notes.append(note + (several if self.at_a_time > 1 and of == "process" else ""))
        if any(item.config["validate"]["patience"] is not None for item in self.items):
            notes.append("updates: at most; validate.patience may end a run before")
        size = self.study.scale(self.scale)
        if size.pilot:
            notes.append("a pilot: these runs never count as evidence")
        return [*notes, *self._cut()]

    def _data(self) -> str:
        size = self.study.scale(self.scale)
        costs = [item.cost for item in self.items if item.cost is not None]
        named = dict.fromkeys(_named(cost["data"]) for cost in costs)
        return f"data: {'; '.join(named) or size.data}"

    def _lacking(self) -> list[str]:
        """Name the test sets of the columns that the data of a row lack."""
        splits = {column.partition("/")[0] for column in self.study.columns}
        asked = {split for split in splits if split.startswith("test_")}
        there = [item.cost["data"]["sizes"] for item in self.items if item.cost is not None]
        lacking = sorted(split for split in asked if any(split not in sizes for sizes in there))
        return [
            f"no {split} in these data: its columns stay empty, and what asks for it stays open"
            for split in lacking
        ]

    def _time(self, left: Sequence[Item]) -> list[str]:
        if not left:
            return []
        seconds = [self.seconds(item) for item in left]
        text = f"time: {duration(sum(seconds))} one run after the other"
        if self.at_a_time > 1:
            text += f", {duration(makespan(seconds, self.at_a_time))} with {self.at_a_time} at once"
        costs = [item.cost for item in left if item.cost is not None]
        if not costs:
            return [
                f"time: not measured, {self.unmeasured}; typed in for the machine that the scale "
                f"is meant for: {duration(sum(seconds))} one run after the other"
            ]
        at = costs[0]["environment"]
        text += (
            f"; measured by a probe on this machine ({at['device']}, {at['threads']} thread(s) a "
            f"run, {at['precision']})"
        )
        if len(costs) < len(left):
            text += f"; ~ typed in, not measured: {self.unmeasured}"
        share = min(cost["busy_share"] for cost in costs)
        if share >= _BUSY:
            return [text]
        alone = sum(
            each * (item.cost["busy_share"] if item.cost is not None else 1)
            for each, item in zip(seconds, left, strict=True)
        )
        return [
            text,
            f"while it was measured, other programs took up to {1 - share:.0%} of the time: alone "
            f"it would be about {duration(alone)} one run after the other",
        ]

    def _cut(self) -> list[str]:
        size = self.study.scale(self.scale)
        there = {item.run.row for item in self.items}
        notes = []
        if self.study.baseline not in there:
            notes.append(
                f"without {self.study.baseline}, which the others are compared with: "
                "the table will have no differences"
            )
        axes = [f"{axis}={next(iter(values))}" for axis, values in size.grid.items()]
        ways = ["rows=1,2 or rows=NAME,NAME", "seeds=1 or seeds=1-3", *axes]
        return [*notes, f"less of it: {'; '.join(ways)}"]


def head(study: Study, scale: str, planned: Sequence[Planned], left: Sequence[object]) -> str:
    """Return one line: how many runs of what, and how many are to go."""
    rows, points = ({getattr(run, name) for run in planned} for name in ("row", "point"))
    seeds = dict.fromkeys(run.seed for run in planned)
    parts = [_count(len(rows), "row")]
    if len(points) > 1:
        parts.append(_count(len(points), "point"))
    parts.append(f"seeds {' '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {min(seeds)}")
    return (
        f"{study.name} at scale={scale}: {len(planned)} runs ({', '.join(parts)}), "
        f"{len(planned) - len(left)} ended, {len(left)} to go"
    )


def makespan(seconds: Iterable[float | int], at_a_time: int) -> float:
    """Return when the last of runs ends that are begun in order, some at a time."""
    ends = [0.0] * at_a_time
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _range(values: Sequence[float | int]) -> str:
    """Return the least and the most, rounded, or the one there is; "" for none."""
    shown = list(dict.fromkeys(f"{value:,.0f}" for value in sorted(values)))
    return "-".join([shown[0], *shown[-1:]][: len(shown)]) if shown else ""


def _named(data: Mapping[str, Any]) -> str:
    first = {"train": 0, "valid": 1}
    ordered = sorted(data["sizes"].items(), key=lambda item: (first.get(item[0], 2), item[0]))
    sizes = ", ".join(f"{split} {count:,}" for split, count in ordered)
    return f"{data['label']} ({sizes}), source: {data['origin']}"


def measured(
    study: Study,
    scale: str,
    items: Sequence[Item],
    probes: Probes,
    problem: str | None,
    until: float,
) -> Plan:
    """Return the plan of runs with what those to go cost, measured where the data can be had.

    What would not be measured by `until`, as `time.monotonic` counts, is not begun.
    """
    plan = Plan(study, scale, items, len(probes.places))
    if problem is not None:
        return replace(plan, unmeasured="the data cannot be had")
    missing = probes.missing(subjects(items))
    if missing:
        seconds = probes.seconds(len(missing))
        whole = (seconds + _START) * len(missing) / len(probes.places)
        if time.monotonic() + whole <= until:
            print_prose(
                f"measuring {len(missing)} configuration(s), {len(probes.places)} at a time, for "
                f"{seconds:.0f} s each and the time to start ..."
            )
            sys.stdout.flush()
            probes.measure(missing, until)
    costs = [None if item.ended else probes.cost(item.config) for item in items]
    problems = [cost for cost in costs if isinstance(cost, str)]
    return replace(
        plan,
        items=[
            replace(item, cost=None if isinstance(cost, str) else cost)
            for item, cost in zip(items, costs, strict=True)
        ],
        unmeasured=problems[0] if problems else None,
    )


def subjects(items: Sequence[Item]) -> list[Subject]:
    """Return the runs to go, as they are measured."""
    return [Subject(item.config, item.run.overrides) for item in items if not item.ended]
