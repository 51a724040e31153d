"""Publishes the runs of a study.

A published run never changes: a different run with the same row, point and seed is an error, unless
the user asks to replace the published one.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace as with_fields

from normlab.errors import UserError
from normlab.publishing.literature import LITERATURE, literature_folders, literature_page
from normlab.publishing.published import check_records, misplaced, read, rendered
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
    """The published part of a run: its record, curve, and hypotheses keyed by test split."""

    record: RunRecord | None
    curve: Sequence[Row]
    hypotheses: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, run: Run) -> "PublishedRun":
        """Return the part of a run to publish, with private folders in its config shortened.

        A run without a folder has no curve and no hypotheses.
        """
        record = run.record and with_fields(run.record, config=portable(run.record.config))
        folder = run.folder if record else None
        tested = folder if record and record.finished else None
        curve = thinned(rows_of_run(folder)) if folder else []
        return cls(record, curve, read_hypotheses(tested) if tested else {})

    def equals(self, other: "PublishedRun") -> bool:
        return self._text() == other._text()

    def _text(self) -> str:
        fields = self.record and json.loads(self.record.to_json())
        return json.dumps(plain([fields, self.curve, self.hypotheses]), sort_keys=True)


def unchanged_pack(root: Path, study: str, scale: str) -> Pack:
    """Return the published runs of a study, or an empty pack if none are published.

    Raises UserError for a damaged record or manifest, or if a file has changed since it was
    published.
    """
    published = pack(root / study / scale)
    check_records(published)
    if changed := manifest.problems(root, [published.folder / name for name in PACK]):
        raise UserError("; ".join([*changed.values(), manifest.restore_or_accept(root)]))
    return published


def check_experiments(published: Pack, experiments: Mapping[Key, str | None]) -> None:
    """Raise UserError if a different experiment is published at the row and point of a new run.

    `experiments` maps the keys of the new runs to their experiments, or to None for a missing run.
    """
    new = {key.row_and_point: label for key, label in experiments.items() if label}
    for key, record in published.records.items():
        label = new.get(key.row_and_point)
        if record and label not in (None, _experiment(record)):
            raise UserError(
                f"{published.folder} has a different experiment for {key.name} "
                f"({_experiment(record)}) than this run ({label}); remove the overrides that "
                "differ, or pass another folder to --publish"
            )


def check_nothing_is_replaced(published: Pack, runs: Iterable[Run], *, making: bool) -> None:
    """Raise UserError if publishing these runs would replace published ones.

    With `making`, runs without a record are still to be made, so they will differ from the
    published ones.
    """
    again = {run.key: run for run in runs if published.records.get(run.key) is not None}
    lines = replacements(published, {key: PublishedRun.of(run) for key, run in again.items()})
    if making:
        lines |= {
            key: f"{_address(published, key)} is already published, from "
            f"{_code(published.records[key])}"
            for key, run in again.items()
            if run.record is None
        }
    if lines:
        raise UserError(_replacing_is_refused(lines))


def replacements(published: Pack, new: Mapping[Key, PublishedRun]) -> dict[Key, str]:
    """Return a line for each published run that a different new run would replace.

    It contains the run's key, and the commits that made the published run and the new one.
    """
    return {
        key: f"{_address(published, key)}: the published run is from {_code(record)}, the new run "
        f"from {_code(run.record)}"
        for key, run in new.items()
        if (record := published.records.get(key)) is not None and run.record is not None
        if not run.equals(
            PublishedRun(record, published.curves.get(key, []), published.hypotheses.get(key, {}))
        )
    }


def _address(published: Pack, key: Key) -> str:
    return f"{published.folder}:{key.name}@seed{key.seed}"


def _code(record: RunRecord | None) -> str:
    """Return the commits that made a run, such as `commit 0a1b2c3d4e with changes`."""
    if record is None:
        return "no code"
    dirty = record.environment.get("dirty")
    return f"commit {', '.join(commit_text(commit[:10], dirty) for commit in record.commits)}"


def _replacing_is_refused(lines: Mapping[Key, str]) -> str:
    """Return an error message with the first line, the number of other lines, and the remedies."""
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

    Publishing the same run again adds nothing. A different run is an error, unless `replacing` is
    passed, which is then called with a line for each replaced run. All other published runs stay,
    even at rows and points that the study no longer has. Raises UserError before writing anything
    if runs are damaged, were changed by hand, or belong to a different experiment.
    """
    folder = root / study.name / scale
    new = {run.key: PublishedRun.of(run) for run in runs}
    with only_writer(folder / RECORDS):
        published = unchanged_pack(root, study.name, scale)
        _check_records_are_in_place(published, runs)
        check_experiments(
            published, {key: run.record and _experiment(run.record) for key, run in new.items()}
        )
        replaced = replacements(published, new)
        if replaced and replacing is None:
            raise UserError(_replacing_is_refused(replaced))
        _check_seeds_form_one_experiment(published, new)
        study = _with_lost_rows(study, [*published.records, *new])
        added = {
            key: run
            for key, run in new.items()
            if key in replaced or published.records.get(key) is None
        }
        _write(published, study, scale, added)
        # Accepted before anything is generated from them: if the disk is full now, the next call
        # can still continue, and `verify` names the missing pages.
        accept(root, [folder / name for name in PACK], required=False)
        write_files(rendered(study, folder))
        shown = literature_folders(root)
        evidence = [path / name for path in shown for name in PACK]
        if folder in shown and not manifest.problems(root, evidence):
            write_files({root / LITERATURE: literature_page(root, read)})
    if replacing is not None:
        for line in replaced.values():
            replacing(f"replaced: {line}")
    return folder


def _check_records_are_in_place(published: Pack, runs: Sequence[Run]) -> None:
    """Raise UserError if the record of a new run was changed by hand, or is of another run."""
    problems = misplaced({**published.records, **{run.key: run.record for run in runs}})
    known: dict[str, Key] = {}
    for run in runs:
        if run.record is None:
            continue
        if (other := known.setdefault(run.record.run_id, run.key)) != run.key:
            problem = f"{run.key.name} has the same record as {other.name}, {run.record.run_id}"
            problems.setdefault(run.key, problem)
        if problem := problems.get(run.key):
            raise UserError(
                f"{run.folder or run.key.name}: {problem}; remove this run and run the study again"
            )


def _check_seeds_form_one_experiment(published: Pack, new: Mapping[Key, PublishedRun]) -> None:
    """Raise UserError if new seeds cannot be averaged with the published ones that stay.

    Their configs are the same, but the data or the size of the model may have changed since, for
    example with a later version of a generated corpus.
    """
    staying = {key: record for key, record in published.records.items() if record is not None}
    records = staying | {key: run.record for key, run in new.items() if run.record}
    by_point = grouped((key.row_and_point, record) for key, record in records.items())
    for point in {key.row_and_point for key in new} & by_point.keys():
        seeds = sorted(by_point[point], key=lambda record: record.seed)
        if (reason := why_not_one_experiment(seeds)) is not None:
            raise UserError(
                f"{published.folder}: these seeds cannot be added to the published ones "
                f"({reason}); run the published seeds again, too, and add --replace"
            )


def _with_lost_rows(study: Study, keys: Iterable[Key]) -> Study:
    """Return a study with the published rows that this version of it lacks.

    They have been removed since, or will be added in a later version.
    """
    lost = {key.row: () for key in keys if key.row not in study.rows}
    return replace(study, rows={**study.rows, **lost})


def _write(published: Pack, study: Study, scale: str, added: Mapping[Key, PublishedRun]) -> None:
    """Rewrite the packed files of a study with the added runs."""
    records = published.records | {key: run.record for key, run in added.items()}
    write_pack(
        published.folder,
        {key: records[key] for key in _by_plan(study, scale, records)},
        published.curves | {key: run.curve for key, run in added.items()},
        published.hypotheses | {key: run.hypotheses for key, run in added.items()},
    )


def check_publishable(root: Path, jobs: Iterable[Job], *, replacing: bool, making: bool) -> None:
    """Raise UserError, before anything runs, if the jobs' runs cannot be published.

    With `replacing`, published runs may change. With `making`, the jobs' unfinished runs are still
    to be made.
    """
    for job in jobs:
        published = unchanged_pack(root, job.study.name, job.scale)
        check_experiments(published, {run.planned.key: run.folder.parent.name for run in job.runs})
        if not replacing:
            check_nothing_is_replaced(published, map(_ended_run, job.runs), making=making)


def publish_seeds(
    root: Path, replacing: Callable[[str], object] | None, job: Job, seeds: Iterable[int]
) -> Path:
    """Publish the runs of a job with these seeds, and return the folder.

    `replacing` and the errors are as in `publish`.
    """
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
    """Sort runs by seed, then in the order of the study. Of a seed, unplanned runs come last."""
    order = {(plan.row, plan.point): n for n, plan in enumerate(study.planned(scale))}
    return sorted(keys, key=lambda k: (k.seed, order.get(k.row_and_point, 10**6)))


def _experiment(record: RunRecord) -> str:
    """Return the id of a run without its seed."""
    return record.run_id.removesuffix(f"-seed{record.seed}")
