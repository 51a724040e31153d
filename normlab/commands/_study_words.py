"""What the words of `normlab study` ask for: studies, scale, rows, seeds, and overrides."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from normlab.records.packed import RECORDS
from normlab.records.record import RunRecord
from normlab.studies import SMOKE, Study, load_study, rate_name
from normlab.studies.queue import Job
from normlab.studies.runs import Run, runs_of

_KEYS = {"scale": "scale", "seeds": "seeds", "seed": "seeds", "rows": "rows", "row": "rows"}
_MOST = 1000  # seeds in a range


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
        raise ValueError("name a study, such as normlab study run translation_norms")
    if len(set(named)) < len(named):
        raise ValueError(f"{' '.join(named)}: name a study once; STUDY:key=value cuts its grid")
    studies = [load_study(name) for name in named]
    return [_job(study, [*common, *own.get(study.name, [])], published) for study in studies]


def taken_out(overrides: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return what `scale=`, `seeds=` and `rows=` say, and the other overrides."""
    found = {
        _KEYS[key]: value
        for key, _, value in (each.partition("=") for each in overrides)
        if key in _KEYS
    }
    return found, [each for each in overrides if each.partition("=")[0] not in _KEYS]


def _job(study: Study, overrides: Sequence[str], published: Path | None) -> Job:
    given, extra = taken_out(overrides)
    scale = given.get("scale", SMOKE)
    seeds = read_seeds(given["seeds"]) if "seeds" in given else None
    if published is not None and seeds is not None:
        raise ValueError("seeds=: --until-decided plans the seeds of each analysis by itself")
    kept = read_rows(given["rows"], study, scale) if "rows" in given else None

    def by_seed(of: Sequence[int]) -> dict[int, list[Run]]:
        runs: dict[int, list[Run]] = {}
        for run in runs_of(study.planned(scale, seeds=of, rows=kept, extra=extra)):
            runs.setdefault(run.planned.seed, []).append(run)
        return runs

    own = seeds if seeds is not None else study.scale(scale).seeds
    first = by_seed(own)
    names = {rate_name(run.planned.row, run.planned.point) for run in first[own[0]]}
    job = Job(study, scale, names, own, by_seed, runs=first)
    if published is not None:
        one = [run.folder for run in first[own[0]]]
        job.published, job.taken = _published(published / study.name / scale, one)
    job.plan(None if published is None else len(job.published))
    wanted = {*job.seeds, *(seed for part in job.later for seed in part)}
    job.runs = {seed: runs for seed, runs in job.runs.items() if seed in wanted}
    return job


def _published(folder: Path, runs: Sequence[Path]) -> tuple[list[int], set[int]]:
    """Return the seeds that are published whole, and those of which some runs were made elsewhere.

    `folder` is that of a study and scale, `runs` are the folders of the runs of one seed. Raises
    ValueError for what is published and damaged.
    """
    from normlab.records.store import RunStore
    from normlab.reports.published import read

    def by_run(records: Iterable[RunRecord | None]) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for record in filter(None, records):
            label = record.run_id.removesuffix(f"-seed{record.seed}")
            found.setdefault(label, set()).add(record.seed)
        return found

    here = by_run(run.record for run in read(folder)) if (folder / RECORDS).is_file() else {}
    whole = set.intersection(*(here.get(run.parent.name, set()) for run in runs))
    every = by_run(RunStore(folder.parents[1]).records())
    taken = {
        seed
        for run in runs
        for seed in every.get(run.parent.name, ())
        if not (run.parent / f"seed{seed}").exists()
    }
    return sorted(whole), taken - whole


def read_rows(text: str, study: Study, scale: str) -> list[str]:
    """Return the rows of a study at a scale that `rows=` names, in the order of the scale.

    A row is given by its name or its number; a list is `ln,bn` or, as names may hold commas,
    `[ln,'bn, padding counted']`. ValueError names the existing rows.
    """
    names = study.scale(scale).rows
    try:
        parts = yaml.load(text if text.startswith("[") else f"[{text}]", Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        parts = [text]
    numbers = {str(number): name for number, name in enumerate(names, 1)}
    found = {part if part in names else numbers.get(str(part), "") for part in parts or [text]}
    if "" in found:
        wrong = next(part for part in parts or [text] if part not in (*names, *numbers))
        there = "; ".join(f"{number} {name}" for number, name in numbers.items())
        raise ValueError(f"rows: {wrong!r} is no row of scale={scale}: there are {there}")
    return [name for name in names if name in found]


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
