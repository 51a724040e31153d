"""The cost of a study's remaining runs: runs, updates, minutes and hours, by row and point.

Times come from finished runs on the kind of device that the remaining runs will use. If there are
none, times come from another kind of device or from the study's file, and are marked.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from normlab.config.machine import settled_device
from normlab.formats import duration
from normlab.records.grouping import grouped
from normlab.records.packed import pack
from normlab.records.record import RunRecord
from normlab.studies.job import Job
from normlab.studies.study_runs import StudyRun

COLUMNS = ("#", "row", "point", "runs", "to go", "length", "min/run", "hours")
OTHER_DEVICE = "*"
ESTIMATE = "~"
_MILLION = 1_000_000
_LIMITS = ("steps", "tokens", "epochs", "minutes")
"""The keys that limit a budget, which are also the units of the limits."""


class TimedRuns(NamedTuple):
    """Finished runs of one kind of device, from which times are estimated.

    `whose` is "own" or "published". `other` is set if they used a different kind of device than the
    remaining runs will use. If there are no runs, `minutes` is the estimate in the study's file.
    """

    records: Sequence[RunRecord]
    whose: str = ""
    other: bool = False
    minutes: float = 0.0

    @property
    def seconds(self) -> float:
        times = [record.budget.wall_seconds for record in self.records]
        return median(times) if times else 60 * self.minutes

    @property
    def mark(self) -> str:
        """The mark of an estimate that is not from runs on this kind of device, or ""."""
        return ESTIMATE if not self.records else OTHER_DEVICE if self.other else ""

    @property
    def machines(self) -> list[str]:
        environments = (record.environment for record in self.records)
        devices = (machine.get("device", "an unknown machine") for machine in environments)
        return [f"{self.whose} on {device}" for device in devices]


def timed(
    device: str, ours: Sequence[RunRecord], published: Sequence[RunRecord], *, minutes: float
) -> TimedRuns:
    """Return the finished runs that best predict how long a run takes on a device, `cpu` or `cuda`.

    Runs on this kind of device are preferred, your own before published ones. If there are none,
    the runs on the most frequent other kind of device are returned. `minutes` is the estimate in
    the study's file.
    """
    sources = {"own": ours, "published": published}
    for whose, records in sources.items():
        if same := [each for each in records if each.environment.get("device_type") == device]:
            return TimedRuns(same, whose)
    for whose, records in sources.items():
        kinds = Counter(each.environment.get("device_type") for each in records)
        if kinds:
            ((kind, _),) = kinds.most_common(1)
            others = [each for each in records if each.environment.get("device_type") == kind]
            return TimedRuns(others, whose, other=True)
    return TimedRuns((), minutes=minutes)


def cost_table(
    job: Job, left: Sequence[StudyRun], results: Path, at_a_time: int
) -> tuple[list[list[str]], list[str]]:
    """Return the table rows (`COLUMNS`), one per study row and point, and notes on data and time.

    A run's expected duration is the median over finished runs of its row and point (`timed`),
    either of the job or published in `results`. If there are none, it is the estimate in the
    study's file. `left` are the runs that are still to be made.
    """
    size = job.study.scale(job.scale)
    published = _published(job, results)
    lines: list[list[str]] = []
    costs: list[tuple[TimedRuns, int]] = []
    by_row_and_point = grouped((run.planned.row_and_point, run) for run in job.runs)
    for (row, point), runs in sorted(
        by_row_and_point.items(), key=lambda of: size.rows.index(of[0][0])
    ):
        ended = [record for run in runs if (record := run.record()) is not None and record.finished]
        device = settled_device(runs[0].config["device"])
        known = timed(device, ended, published.get((row, point), ()), minutes=size.minutes)
        to_go = sum(run in left for run in runs)
        costs.append((known, to_go))
        counts = [str(len(runs)), str(to_go), _length(runs[0].config["budget"])]
        times = [_time(known.seconds / 60, 1), _time(known.seconds * to_go / 3600, 2)]
        marked = [f"{known.mark}{time}" for time in times]
        lines.append([str(size.rows.index(row) + 1), row, point, *counts, *marked])
    pilot = ["a pilot: these runs never count as evidence"] if size.pilot else []
    return lines, [f"data: {size.data}", *pilot, *_time_notes(costs, at_a_time)]


def _published(job: Job, results: Path) -> Mapping[tuple[str, str], list[RunRecord]]:
    """Return the finished published runs of a job's study and scale, by row and point."""
    records = pack(results / job.study.name / job.scale).records.items()
    return grouped(
        (key.row_and_point, record) for key, record in records if record and record.finished
    )


def _time(value: float, decimals: int) -> str:
    """Format minutes or hours with this many decimals, or with none for values of 100 or more."""
    return f"{value:.{decimals if value < 100 else 0}f}"


def _length(budget: Mapping[str, float | int | None]) -> str:
    """Return the length of a run's training, such as `800 steps` or `600,000 tokens`."""
    return " or ".join(
        f"{limit / _MILLION:g}M {unit}" if limit >= _MILLION else f"{limit:,} {unit}"
        for unit in _LIMITS
        if (limit := budget[unit])
    )


def _time_notes(costs: Sequence[tuple[TimedRuns, int]], at_a_time: int) -> list[str]:
    """Return notes on the total time, and on the runs from which it is estimated."""
    total = sum(known.seconds * to_go for known, to_go in costs)
    at_a_time = min(at_a_time, sum(to_go for _, to_go in costs))
    longest = max((known.seconds for known, to_go in costs if to_go), default=0.0)
    fastest = max(longest, total / max(1, at_a_time))
    in_parallel = f", or {duration(fastest)} with {at_a_time} in parallel"
    notes = [
        f"time: {duration(total)} one run after the other{in_parallel if at_a_time > 1 else ''}"
    ]
    if any(not known.records for known, _ in costs):
        notes.append(f"{ESTIMATE}: estimated in the study's file, because no such run has finished")
    if any(known.other for known, _ in costs):
        others = dict.fromkeys(name for known, _ in costs if known.other for name in known.machines)
        source = f"the time of another kind of device ({'; '.join(others)})"
        notes.append(f"{OTHER_DEVICE}: {source}, because no run has finished on this kind")
    machines = Counter(name for known, _ in costs for name in known.machines)
    if machines:
        runs_on = "; ".join(f"{count} {where}" for where, count in machines.items())
        notes.append(f"min/run: the median of finished runs ({runs_on})")
    return notes
