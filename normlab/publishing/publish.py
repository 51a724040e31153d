"""Publishes the runs of a study, and refuses runs that would change published ones.

A published run never changes.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace as with_fields

from normlab.errors import UserError
from normlab.publishing.literature import LITERATURE, literature_page
from normlab.publishing.published import checked, read, rendered
from normlab.records import manifest
from normlab.records.code import commit_text
from normlab.records.files import only_writer
from normlab.records.grouping import grouped
from normlab.records.manifest import accept, write_files
from normlab.records.packed import PACK, RECORDS, Key, Pack, pack, write_pack
from normlab.records.pairs import why_not_one_experiment
from normlab.records.record import Row, RunRecord, plain, portable
from normlab.records.store import read_hypotheses
from normlab.reports.runs import Run, rows_of_run, thinned
from normlab.studies.job import Job
from normlab.studies.study import Study
from normlab.studies.study_runs import StudyRun


class PublishedRun(NamedTuple):
    """The published part of a run: its record, its curve, and its hypotheses by test split."""

    record: RunRecord | None
    curve: Sequence[Row]
    hypotheses: Mapping[str, Sequence[str]]

    def equals(self, other: "PublishedRun") -> bool:
        return self._text() == other._text()

    def _text(self) -> str:
        fields = self.record and json.loads(self.record.to_json())
        return json.dumps(plain([fields, self.curve, self.hypotheses]), sort_keys=True)


def evidence(run: Run) -> PublishedRun:
    """Return the published part of a run. A run without a folder has no curve and no hypotheses."""
    record = run.record and with_fields(run.record, config=portable(run.record.config))
    folder = run.folder if record else None
    tested = folder if record and record.finished else None
    curve = thinned(rows_of_run(folder)) if folder else []
    return PublishedRun(record, curve, read_hypotheses(tested) if tested else {})


def check(root: Path, study: str, scale: str, experiments: Mapping[Key, str | None]) -> Pack:
    """Return the published runs after checking that new runs can be added.

    `experiments` maps the keys of the new runs to their experiments, or to None for a missing run.
    Raises UserError for a damaged record or manifest, for evidence that has changed since it was
    published, and if a different experiment is already published at one of these rows and points.
    """
    runs = checked(pack(root / study / scale))
    if changed := manifest.problems(root, [runs.folder / name for name in PACK]):
        raise UserError("; ".join([*changed.values(), manifest.restore_or_accept(root)]))
    labels = {(key.row, key.point): label for key, label in experiments.items() if label}
    for key, record in runs.records.items():
        label = labels.get((key.row, key.point))
        if record and label not in (None, _label(record)):
            raise UserError(
                f"{runs.folder} has a different experiment for {key.name} ({_label(record)}) than "
                f"this run ({label}); remove the overrides that differ, or pass another folder to "
                "--publish"
            )
    return runs


def check_unchanged(runs: Pack, others: Iterable[Run], *, making: bool) -> None:
    """Raise UserError if publishing new runs would change published ones.

    With `making`, runs without a record are still to be made, so they will differ from the
    published ones.
    """
    by_key = {run.key: run for run in others if runs.records.get(run.key) is not None}
    lines = changes(runs, {key: evidence(run) for key, run in by_key.items()})
    if making:
        lines |= {
            key: f"{_place(runs, key)} is already published, from {_code(runs.records[key])}"
            for key, run in by_key.items()
            if run.record is None
        }
    if lines:
        raise UserError(_refused(lines))


def changes(runs: Pack, others: Mapping[Key, PublishedRun]) -> dict[Key, str]:
    """Return a line for each published run that a new run would replace with different evidence.

    It contains the run's key, and the commits that made the published run and the new one.
    """
    return {
        key: f"{_place(runs, key)}: the published run is from {_code(record)}, the new run from "
        f"{_code(other.record)}"
        for key, other in others.items()
        if (record := runs.records.get(key)) is not None and other.record is not None
        if not other.equals(
            PublishedRun(record, runs.curves.get(key, []), runs.hypotheses.get(key, {}))
        )
    }


def _place(runs: Pack, key: Key) -> str:
    return f"{runs.folder}:{key.name}@seed{key.seed}"


def _code(record: RunRecord | None) -> str:
    """Return the commits that made a run, such as `commit 0a1b2c3d4e with changes`."""
    if record is None:
        return "no code"
    dirty = record.environment.get("dirty")
    return f"commit {', '.join(commit_text(commit[:10], dirty) for commit in record.commits)}"


def _refused(lines: Mapping[Key, str]) -> str:
    """Return the error for published runs that would change: the first run, and how many follow."""
    first, *others = lines.values()
    more = f" (and {len(others)} more)" if others else ""
    return (
        f"{first}{more}; omit published runs with seeds= or rows=, or add --replace to overwrite "
        "them"
    )


def publish(
    root: Path,
    study: Study,
    scale: str,
    runs: Sequence[Run],
    *,
    replacing: Callable[[str], object] | None = None,
) -> Path:
    """Add runs to the published ones, rewrite tables and page, and return the folder.

    A published run never changes: publishing the same run again adds nothing, and different
    evidence for it is an error, unless `replacing` is passed, which is called with a line for each
    replaced run. All runs that are already published stay, even at rows and points that the study
    no longer has. Raises UserError before writing anything if runs are damaged, `check` would fail,
    or evidence would change.
    """
    folder = root / study.name / scale
    others = {run.key: evidence(run) for run in runs}
    with only_writer(folder / RECORDS):
        labels = {key: each.record and _label(each.record) for key, each in others.items()}
        known = check(root, study.name, scale, labels)
        changed = changes(known, others)
        if changed and replacing is None:
            raise UserError(_refused(changed))
        _check_same_experiments(known, others)
        study = _with_lost_rows(study, [*known.records, *others])
        added = {
            key: each
            for key, each in others.items()
            if key in changed or known.records.get(key) is None
        }
        _write(known, study, scale, added)
        # Accepted before anything is generated from them: if the disk is full now, the next call
        # can still continue, and `verify` names the missing pages.
        accept(root, [folder / name for name in PACK], required=False)
        write_files(rendered(study, folder))
        if study.literature and (root / LITERATURE).is_file():
            write_files({root / LITERATURE: literature_page(root, read)})
    if replacing is not None:
        for line in changed.values():
            replacing(f"replaced: {line}")
    return folder


def _check_same_experiments(known: Pack, others: Mapping[Key, PublishedRun]) -> None:
    """Raise UserError if new seeds cannot be averaged with the published ones that stay.

    Their configs are the same, but the data or the size of the model has changed since, as with a
    later version of a generated corpus.
    """
    published = {key: run for key, run in known.records.items() if run is not None}
    records = published | {key: run.record for key, run in others.items() if run.record}
    places = grouped((key.row_and_point, run) for key, run in records.items())
    for place in {key.row_and_point for key in others} & places.keys():
        seeds = sorted(places[place], key=lambda run: run.seed)
        if (reason := why_not_one_experiment(seeds)) is not None:
            raise UserError(
                f"{known.folder}: these seeds cannot be added to the published ones ({reason}); "
                "run the published seeds again, too, and add --replace"
            )


def _with_lost_rows(study: Study, keys: Iterable[Key]) -> Study:
    """Return a study with the published rows that this version of it lacks.

    They were removed since, or will be added in a later version.
    """
    lost = {key.row: () for key in keys if key.row not in study.rows}
    return replace(study, rows={**study.rows, **lost})


def _write(known: Pack, study: Study, scale: str, added: Mapping[Key, PublishedRun]) -> None:
    """Write the packed files of a study again, with the added runs."""
    records = known.records | {key: each.record for key, each in added.items()}
    write_pack(
        known.folder,
        {key: records[key] for key in _by_plan(study, scale, records)},
        known.curves | {key: each.curve for key, each in added.items()},
        known.hypotheses | {key: each.hypotheses for key, each in added.items()},
    )


def check_jobs(root: Path, jobs: Iterable[Job], *, replacing: bool, making: bool) -> None:
    """Raise UserError, before anything runs, if the jobs' runs cannot be published.

    With `replacing`, published runs may change. With `making`, the jobs' unfinished runs are still
    to be made.
    """
    for job in jobs:
        experiments = {run.planned.key: run.folder.parent.name for run in job.runs}
        runs = check(root, job.study.name, job.scale, experiments)
        if not replacing:
            check_unchanged(runs, map(_ended_run, job.runs), making=making)


def publish_seeds(
    root: Path, replacing: Callable[[str], object] | None, job: Job, seeds: Iterable[int]
) -> Path:
    """Publish the runs of a job with these seeds like `publish`, and return the folder."""
    runs = [_ended_run(run) for seed in seeds for run in job.by_seed[seed]]
    return publish(root, job.study, job.scale, runs, replacing=replacing)


def _ended_run(run: StudyRun) -> Run:
    """Return a study's run in the form that tables and pages read.

    It has no record until it ends.
    """
    record = run.record()
    ended = record if run.has_ended(record) else None
    return Run(run.planned.key, ended, folder=run.folder)


def _by_plan(study: Study, scale: str, keys: Iterable[Key]) -> list[Key]:
    """Return the runs by seed in the order of the study. Runs that it does not plan come last."""
    order = {(plan.row, plan.point): n for n, plan in enumerate(study.planned(scale))}
    return sorted(keys, key=lambda k: (k.seed, order.get((k.row, k.point), 10**6)))


def _label(record: RunRecord) -> str:
    return record.run_id.removesuffix(f"-seed{record.seed}")
