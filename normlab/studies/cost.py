"""The cost of a study's remaining runs: runs, updates, minutes and hours, by row and point.

Times come from finished runs on the kind of device that the remaining runs will use. If there are
none, times come from another kind of device or from the study's file, and are marked.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from normlab.config.machine import settled_device
from normlab.formats import duration
from normlab.records.grouping import grouped
from normlab.records.packed import pack
from normlab.records.record import RunRecord
from normlab.studies.job import Job
from normlab.studies.run_times import ESTIMATE, OTHER_DEVICE, TimedRuns, timed
from normlab.studies.study_runs import StudyRun

COLUMNS = ("#", "row", "point", "runs", "to go", "length", "min/run", "hours")
_MILLION = 1_000_000
_LIMITS = ("steps", "tokens", "epochs", "minutes")
"""The keys that limit a budget, which are also the units of the limits."""


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
