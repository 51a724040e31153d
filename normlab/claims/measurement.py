"""The command that measures more for an open part of a claim, and its cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from normlab.claims.evidence import EvidenceStore, PlannedRuns
from normlab.records.packed import Key
from normlab.records.point import place_text
from normlab.studies.load import load_study, tuning_of
from normlab.studies.run_times import TimedRuns, timed_anywhere
from normlab.studies.study import Scale, Tuning
from normlab.studies.study_part import SmallestPart, smallest_part

_COMMIT = "git add configs results && git commit -m rates"
"""Runs of uncommitted code do not count, and tuning changes the study's file."""
Place = tuple[str, str]
"""A row and a point of the grid."""


@dataclass(frozen=True)
class Measurement:
    """A command that measures more, and its cost, such as `30 runs, about 2.0 h`."""

    command: str
    cost: str


class _Trials(NamedTuple):
    """The command that runs the trials of a tuning, their number, and their seconds."""

    command: str
    number: int
    seconds: float


def measurement(
    plan: PlannedRuns,
    evidence: EvidenceStore,
    part: SmallestPart,
    seeds: Sequence[int],
    *,
    again: bool,
) -> Measurement:
    """Return the command that runs a part of a study for these seeds, and its cost.

    If the study has yet to choose the rate of a row in the part, the command begins with its
    tuning. With `again`, these seeds are published already, for a text that has changed since.
    """
    times = _times(plan, evidence, part)
    seconds = sum(time.seconds for time in times.values()) * len(seeds)
    words = [*_words(plan, part)]
    if sorted(plan.scale.seeds) != [*seeds]:
        words.append(f"seeds={','.join(map(str, seeds))}")
    command, cost = f"normlab study run {' '.join(words)}", f"{len(times) * len(seeds)} runs"
    if (trials := _trials(plan, evidence, part)) is not None:
        command = f"{trials.command} && {_COMMIT} && {command}"
        cost = f"{trials.number} trials and {cost}"
        seconds += trials.seconds
    hours = seconds / 3600
    takes = f"{hours:.1f} h" if hours > 2 else f"{60 * hours:.0f} min"
    cost += f", about {takes}{_devices([*times.values()])}; data: {plan.scale.data}"
    if again:
        cost += ", which has changed since: run all seeds again and publish with --replace"
    return Measurement(command, cost)


def _words(plan: PlannedRuns, part: SmallestPart) -> list[str]:
    return [plan.study.name, f"scale={plan.scale_name}", *part.words]


def _times(
    plan: PlannedRuns, evidence: EvidenceStore, part: SmallestPart
) -> dict[Place, TimedRuns]:
    """Return how long a run takes at each place of a part, the same on every machine."""
    finished = evidence.finished(plan.study.name, plan.scale_name)
    return {
        place: timed_anywhere(
            finished.get(Key(*place, seed=0).name, ()), minutes=plan.scale.minutes
        )
        for place in part.places
    }


def _trials(plan: PlannedRuns, evidence: EvidenceStore, part: SmallestPart) -> _Trials | None:
    """Return the trials that choose the missing rates of a part, or None if none is missing."""
    untuned = evidence.untuned(plan.study.name, plan.scale_name)
    if not (places := [place for place in part.places if place_text(*place) in untuned]):
        return None
    tuned = smallest_part(plan.study, plan.scale_name, places)
    load = partial(load_study, configs=evidence.configs)
    tuning = tuning_of(plan.study, plan.scale_name, load)
    of_place = len(tuning.values) * len(tuning.seeds)
    seconds = sum(
        time.seconds * of_place * _share_of_run(tuning, plan.scale, row)
        for (row, _), time in _times(plan, evidence, tuned).items()
    )
    command = f"normlab study tune {' '.join(_words(plan, tuned))}"
    return _Trials(command, of_place * len(tuned.places), seconds)


def _share_of_run(tuning: Tuning, scale: Scale, row: str) -> float:
    """Return the length of a row's trial as a share of a run, by the limit that both have."""
    run, trial = _limits(scale.overrides), _limits(tuning.overrides)
    if row in tuning.whole_runs:
        return 1.0
    return min((trial[key] / run[key] for key in run.keys() & trial.keys()), default=1.0)


def _limits(overrides: Sequence[str]) -> dict[str, float]:
    """Return the limits of `budget` that are set, such as `budget.steps` or `budget.tokens`."""
    pairs = (text.split("=", 1) for text in overrides if text.startswith("budget."))
    return {key: float(value) for key, value in pairs if value != "null"}


def _devices(times: Sequence[TimedRuns]) -> str:
    """Return the devices of the runs behind some times, or "" if a time is only estimated."""
    names = {
        str(record.environment.get("device")): None for time in times for record in time.records
    }
    return f" on {', '.join(names)}" if names and all(time.records for time in times) else ""
