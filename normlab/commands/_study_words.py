"""What the words of `normlab study` ask for: studies, scale, rows, seeds, and overrides."""

import argparse
import math
import re
import time
from collections.abc import Sequence
from glob import escape
from pathlib import Path

import yaml

from normlab.studies import SMOKE, Planned, Study, load_study, rate_name
from normlab.studies.queue import Job, seeds_by_analyses
from normlab.studies.runs import Run, runs_of

_MOST = 1000  # seeds in a range
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def read_time(text: str) -> float:
    """Return the seconds of `90m`, `2.5h` or `45s`; ArgumentTypeError for anything else."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text}: expected a time, such as 90m or 2.5h")
    return float(found[1]) * _UNITS[found[2]]


def deadline(seconds: float | None) -> float:
    """Return when a budget that begins now is spent, as `time.monotonic` counts."""
    return math.inf if seconds is None else time.monotonic() + seconds


def asked(words: Sequence[str], *, published: Path | None = None) -> list[Job]:
    """Return a job for each study that is named; words for one study begin with its name.

    With `published`, the folder of published studies, seeds are planned by the planned analyses,
    after those that are published.
    """
    named = [word for word in words if "=" not in word]
    own: dict[str, list[str]] = {}
    common: list[str] = []
    for override in (word for word in words if "=" in word):
        study, colon, _ = override.partition("=")[0].partition(":")
        if colon and study not in named:
            raise ValueError(f"{override}: {study} is none of the studies named: {' '.join(named)}")
        (own.setdefault(study, []) if colon else common).append(override.removeprefix(f"{study}:"))
    if not named:
        raise ValueError("name a study, such as normlab study run iwslt_norms")
    if len(set(named)) < len(named):
        raise ValueError(f"{' '.join(named)}: name a study once; STUDY:key=value cuts its grid")
    studies = [load_study(name) for name in named]
    return [_job(study, [*common, *own.get(study.name, [])], published) for study in studies]


def taken_out(words: Sequence[str], **forms: str) -> tuple[dict[str, str], list[str]]:
    """Return the values of the keys that `forms` gives a second form, and the other overrides."""
    found: dict[str, str] = {}
    others: list[str] = []
    for word in words:
        key, _, value = word.partition("=")
        name = next((name for name, other in forms.items() if key in (name, other)), None)
        if name is None:
            others.append(word)
        else:
            found[name] = value
    return found, others


def _job(study: Study, overrides: Sequence[str], published: Path | None) -> Job:
    given, extra = taken_out(overrides, scale="scale", seeds="seed", rows="row")
    scale = given.get("scale", SMOKE)
    seeds = read_seeds(given["seeds"]) if "seeds" in given else None
    if published is not None and seeds is not None:
        raise ValueError("seeds=: --until-decided plans the seeds of each analysis by itself")
    kept = read_rows(given["rows"], study, scale) if "rows" in given else None

    def planned(of: Sequence[int] | None) -> list[Planned]:
        return study.planned(scale, seeds=seeds if of is None else of, rows=kept, extra=extra)

    def by_seed(of: Sequence[int] | None) -> dict[int, Sequence[Run]]:
        runs: dict[int, list[Run]] = {}
        for run in runs_of(planned(of)):
            runs.setdefault(run.planned.seed, []).append(run)
        return {**runs}

    first = planned(None)
    names = {rate_name(run.row, run.point) for run in first}
    own = list(dict.fromkeys(run.seed for run in first))
    if published is None:
        return Job(study, scale, names, by_seed(None), own)
    one = [run.folder for run in runs_of([run for run in first if run.seed == own[0]])]
    there, taken = _published(published / study.name / scale, one)
    now, later = seeds_by_analyses(own, there, taken)
    runs = by_seed([*now, *(seed for part in later for seed in part)])
    return Job(study, scale, names, runs, now, later, there, len(there), taken, by_seed)


def _published(folder: Path, runs: Sequence[Path]) -> tuple[list[int], set[int]]:
    """Return the seeds that are published whole, and those of which some runs were made elsewhere.

    `folder` is that of a study and scale, `runs` are the folders of the runs of one seed. Raises
    ValueError for what is published and damaged.
    """
    from normlab.records.store import RUNS_FILE
    from normlab.reports.published import read

    listed = read(folder)[1] if (folder / RUNS_FILE).is_file() else []
    by_run: dict[str, set[int]] = {}
    for _, record in listed:
        if record is not None:
            label = record.run_id.removesuffix(f"-seed{record.seed}")
            by_run.setdefault(label, set()).add(record.seed)
    whole = set.intersection(*(by_run.get(run.parent.name, set()) for run in runs))
    taken: set[int] = set()
    for run in runs:
        for there in folder.parents[1].glob(f"*/*/records/{escape(run.parent.name)}/seed*"):
            number = there.name.removeprefix("seed")
            if number.isdecimal() and not (run.parent / there.name).exists():
                taken.add(int(number))
    return sorted(whole), taken - whole


def read_rows(text: str, study: Study, scale: str) -> list[str]:
    """Return the rows of a study at a scale that `rows=` names, in the order of the scale.

    A row is given by its name, by an unambiguous beginning, or by its number. A list is `ln,bn` or,
    as names may hold commas, `[ln,'bn, padding counted']`; a name that holds a comma is also found
    without quotes. ValueError names the existing rows.
    """
    try:
        inner = text if text.startswith("[") else f"[{text}]"
        parts = yaml.load(inner, Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        parts = None
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(
            f"rows={text}: expected names or numbers of rows, such as rows=1,3 or "
            "rows=\"[ln,'bn, padding counted']\""
        )
    names = study.scale(scale).rows
    found: set[str] = set()
    while parts:
        counts = range(len(parts), 1, -1)
        count = next((n for n in counts if ", ".join(parts[:n]) in study.rows), 1)
        found.add(_row(", ".join(parts[:count]), names, study, scale))
        parts = parts[count:]
    return [name for name in names if name in found]


def _row(asked: str, names: Sequence[str], study: Study, scale: str) -> str:
    if asked in names:
        return asked
    there = "; ".join(f"{n} {name}" for n, name in enumerate(names, 1))
    if asked in study.rows:
        raise ValueError(
            f"rows: {asked!r} is a row of the study, but not of scales.{scale}.rows in "
            f"configs/study/{study.name}.yaml: add it there, or take one of {there}"
        )
    if asked.isdecimal() and 1 <= int(asked) <= len(names):
        return names[int(asked) - 1]
    near = [name for name in names if name.startswith(asked)]
    if len(near) == 1:
        return near[0]
    fits = f"fits {' and '.join(map(repr, near))}" if near else "is no row"
    raise ValueError(f"rows: {asked!r} {fits}: there are {there}")


def read_seeds(text: str) -> list[int]:
    """Return the seeds that `seeds=` names: `1,2,3`, `1-5` or both."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()):
            raise ValueError(f"seeds={text}: expected numbers, such as seeds=1,2,3 or seeds=1-5")
        if not int(first) <= int(last) < int(first) + _MOST:
            raise ValueError(f"seeds={text}: {part.strip()} is no range, such as 1-5")
        seeds += range(int(first), int(last) + 1)
    return seeds
