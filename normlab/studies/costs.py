"""The time that a study takes, estimated from the durations of runs that have ended."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from normlab.records.packed import pack
from normlab.records.record import RunRecord
from normlab.studies.queue import Job
from normlab.studies.runs import Run
from normlab.train.console import duration

COLUMNS = ("#", "row", "point", "runs", "to go", "updates", "min/run", "hours")


def cost_table(
    job: Job, left: Sequence[Run], results: Path, at_a_time: int
) -> tuple[list[list[str]], list[str]]:
    """Return the table rows (`COLUMNS`), one per row and point, and notes on data and time.

    A run is expected to take the median duration of the job's own runs of its row and point that
    finished, or else of the published ones in `results`. `left` are the runs still to be made.
    """
    size = job.study.scale(job.scale)
    published: dict[tuple[str, str], list[RunRecord]] = {}
    for key, record in pack(results / job.study.name / job.scale).records.items():
        if record is not None and record.finished:
            published.setdefault((key.row, key.point), []).append(record)
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in job.asked():
        groups.setdefault(run.planned[:2], []).append(run)
    lines, total, machines, unknown = list[list[str]](), 0.0, Counter[str](), False
    for (row, point), runs in groups.items():
        own = [record for run in runs if (record := run.record()) is not None and record.finished]
        ended, to_go = own or published.get((row, point), []), sum(run in left for run in runs)
        minutes = hours = "?"
        if ended:
            seconds = median(record.budget.wall_seconds for record in ended)
            machines.update(f"{'own' if own else 'published'} on {_machine(r)}" for r in ended)
            minutes, hours = f"{seconds / 60:.1f}", f"{seconds * to_go / 3600:.2f}"
            total += seconds * to_go
        unknown = unknown or (to_go > 0 and not ended)
        steps = runs[0].config["budget"]["steps"]
        counts = [str(len(runs)), str(to_go), f"{steps:,}" if steps else "?"]
        lines.append([str(size.rows.index(row) + 1), row, point, *counts, minutes, hours])
    lines.sort(key=lambda line: int(line[0]))
    notes = [f"data: {size.data}"]
    if machines:
        at_once = f", {duration(total / at_a_time)} with {at_a_time} at once"
        time = f"time: {duration(total)} one run after the other"
        notes.append(time + (at_once if at_a_time > 1 else ""))
        runs_on = "; ".join(f"{count} {where}" for where, count in machines.items())
        notes.append(f"min/run: the median of finished runs ({runs_on})")
    if unknown:
        notes.append("?: unknown until the first run of the row has ended")
    if size.pilot:
        notes.append("a pilot: these runs never count as evidence")
    return lines, notes


def _machine(record: RunRecord) -> str:
    return str(record.environment.get("device", "an unknown machine"))
