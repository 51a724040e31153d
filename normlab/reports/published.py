"""The committed results of a study, `results/<study>/<scale>/`, from which its pages are made.

The runs are packed (`normlab.records.packed`). A published run never changes.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace as with_fields

from normlab.errors import UserError
from normlab.records import manifest
from normlab.records.code import commit_text
from normlab.records.files import only_writer
from normlab.records.manifest import MANIFEST, PAGE_FILE, accept, stale, write_files
from normlab.records.packed import MEND_PUBLISHED, PACK, RECORDS, Key, Pack, pack, write_pack
from normlab.records.record import Row, RunRecord, fingerprint, plain, portable
from normlab.records.store import read_hypotheses
from normlab.reports.cards import BOARD, FOLDER, card_pages
from normlab.reports.latex import latex
from normlab.reports.literature import LITERATURE, literature_page
from normlab.reports.names import renamed
from normlab.reports.page import study_page
from normlab.reports.runs import Run, rows_of_run, run_of_study, thinned
from normlab.reports.score_table import score_table
from normlab.reports.table import comma_separated, markdown
from normlab.reports.table_runs import TableRuns
from normlab.studies.job import Job
from normlab.studies.load import load_study
from normlab.studies.study import Study

_NO_STUDIES = ("cards", "health")
"""Folders whose runs do not belong to a study."""


class Evidence(NamedTuple):
    """The published part of a run: its record, its curve, and its hypotheses by test split."""

    record: RunRecord | None
    curve: Sequence[Row]
    hypotheses: Mapping[str, Sequence[str]]

    def equals(self, other: "Evidence") -> bool:
        return self._text() == other._text()

    def _text(self) -> str:
        fields = self.record and json.loads(self.record.to_json())
        return json.dumps(plain([fields, self.curve, self.hypotheses]), sort_keys=True)


def evidence(run: Run) -> Evidence:
    """Return the published part of a run; a run without a folder has no curve and no hypotheses."""
    record = run.record and with_fields(run.record, config=portable(run.record.config))
    folder = run.folder if record else None
    tested = folder if record and record.finished else None
    curve = thinned(rows_of_run(folder)) if folder else []
    return Evidence(record, curve, read_hypotheses(tested) if tested else {})


def check(root: Path, study: str, scale: str, experiments: Mapping[Key, str | None]) -> Pack:
    """Return the published runs after checking that new runs can be added.

    `experiments` maps the keys of the new runs to their experiments, or to None for a missing run.
    Raises UserError for a damaged record or manifest, for evidence that has changed since it was
    published, and if a different experiment is already published at one of these rows and points.
    """
    runs = _checked(pack(root / study / scale))
    if changed := manifest.problems(root, [runs.folder / name for name in PACK]):
        raise UserError("; ".join([*changed.values(), manifest.restore_or_accept(root)]))
    labels = {(key.row, key.point): label for key, label in experiments.items() if label}
    for key, record in runs.records.items():
        label = labels.get((key.row, key.point))
        if record and label not in (None, _label(record)):
            raise UserError(
                f"{runs.folder} holds different experiments ({key.name}: published is "
                f"{_label(record)}, this run is {label}): remove the overrides that differ, or "
                "give --publish another folder"
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
            key: f"{_place(runs, key)} is published already, from {_code(runs.records[key])}"
            for key, run in by_key.items()
            if run.record is None
        }
    if lines:
        raise UserError(_refused(lines))


def changes(runs: Pack, others: Mapping[Key, Evidence]) -> dict[Key, str]:
    """Return a line for each published run that a new run would replace with different evidence.

    It names the run's key, and the commits that made the published run and the new one.
    """
    return {
        key: f"{_place(runs, key)}: published is the run of {_code(record)}, the new run is of "
        f"{_code(other.record)}"
        for key, other in others.items()
        if (record := runs.records.get(key)) is not None and other.record is not None
        if not other.equals(
            Evidence(record, runs.curves.get(key, []), runs.hypotheses.get(key, {}))
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
    """Return the error for published runs that would change: the first, and the number of more."""
    first, *others = lines.values()
    more = f" (and {len(others)} more)" if others else ""
    return (
        f"{first}{more}; a published run never changes: leave it out, with seeds= or rows=, or "
        "give --replace"
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
        added = {
            key: each
            for key, each in others.items()
            if key in changed or known.records.get(key) is None
        }
        every = known.records | {key: each.record for key, each in added.items()}
        # Rows that this version of the study does not have: removed since, or added in a later
        # version.
        lost = {key.row: () for key in every if key.row not in study.rows}
        study = replace(study, rows={**study.rows, **lost})
        write_pack(
            folder,
            {key: every[key] for key in _by_plan(study, scale, every)},
            known.curves | {key: each.curve for key, each in added.items()},
            known.hypotheses | {key: each.hypotheses for key, each in added.items()},
        )
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


def check_jobs(root: Path, jobs: Iterable[Job], *, replacing: bool, making: bool) -> None:
    """Raise UserError, before anything runs, if the jobs' runs cannot be published.

    With `replacing`, published runs may change. With `making`, the jobs' unfinished runs are still
    to be made.
    """
    for job in jobs:
        experiments = {run.planned.key: run.folder.parent.name for run in job.runs}
        runs = check(root, job.study.name, job.scale, experiments)
        if not replacing:
            check_unchanged(runs, map(run_of_study, job.runs), making=making)


def publish_seeds(
    root: Path, replacing: Callable[[str], object] | None, job: Job, seeds: Iterable[int]
) -> Path:
    """Publish the runs of a job with these seeds like `publish`, and return the folder."""
    runs = [run_of_study(run) for seed in seeds for run in job.by_seed[seed]]
    return publish(root, job.study, job.scale, runs, replacing=replacing)


def _by_plan(study: Study, scale: str, keys: Iterable[Key]) -> list[Key]:
    """Return the runs by seed in the order of the study; those that it does not plan come last."""
    order = {(plan.row, plan.point): n for n, plan in enumerate(study.planned(scale))}
    return sorted(keys, key=lambda k: (k.seed, order.get((k.row, k.point), 10**6)))


def _label(record: RunRecord) -> str:
    return record.run_id.removesuffix(f"-seed{record.seed}")


def rendered(study: Study | None, folder: Path) -> dict[Path, str]:
    """Return the text of all files that are generated from a published study's records, by path.

    Without `study`, the folder names it. Raises UserError naming each damaged file, a study that
    does not exist, or a row that the study no longer has.
    """
    study = study or load_study(folder.parent.name)
    runs, scale = read(folder), folder.name
    if lost := {run.key.row for run in runs} - {*study.rows}:
        raise UserError(
            f"{folder / RECORDS}: the study {study.name} has no row {min(lost)!r}; put it back, "
            f"or remove {folder} and publish again"
        )
    source = TableRuns.of_study(study, scale, runs)
    table = score_table(source)
    paper = renamed(source, {}, full=True)
    in_latex = latex(score_table(paper), baseline=paper.baseline, uncertainty="stars")
    return {
        folder / "table.md": markdown(table),
        folder / "table.tex": in_latex,
        folder / "table.csv": comma_separated(table),
        folder / PAGE_FILE: study_page(source, table, folder),
    }


def read(folder: Path) -> list[Run]:
    """Return the runs of a published study; raises UserError naming each damaged record."""
    if not (folder / RECORDS).exists():
        raise UserError(f"{folder} has no {RECORDS}: it is not a published study")
    runs = _checked(pack(folder))
    return [
        Run(key, record, runs.curves.get(key, ()), record and runs.addresses[key])
        for key, record in runs.records.items()
    ]


def _checked(runs: Pack) -> Pack:
    """Return the runs; raises UserError naming records that do not match their config."""
    wrong = [
        f"{runs.folder / RECORDS}: {record.run_id} does not have its config's fingerprint; "
        f"{MEND_PUBLISHED}"
        for record in runs.records.values()
        if record and fingerprint(record.config) != record.fingerprint
    ]
    if wrong:
        raise UserError("\n".join(wrong))
    return runs


def verify(
    root: Path, study: str | None = None, *, write: bool = False
) -> tuple[list[str], list[str]]:
    """Check the evidence below a folder, and the tables and pages made from it.

    Returns two lists of lines: what is up to date or was written, and what is wrong. With `write`,
    outdated files are regenerated, except for studies whose evidence changed after publication.
    `study` limits the check to one study. Raises UserError if no study is published.
    """
    changed = manifest.problems(root)
    known = root / MANIFEST not in changed  # otherwise no file can be checked
    if study is not None and known:
        changed = {path: why for path, why in changed.items() if root / study in path.parents}
    up_to_date: list[str] = []
    wrong = [*changed.values()]
    if changed:
        wrong.append(manifest.restore_or_accept(root))
    for name in _unchanged(root, changed, study) if known else ():
        try:
            files = _files_of(root, name)
        except UserError as error:
            wrong += str(error).splitlines()
            continue
        late = stale(files)
        if write or not late:
            write_files({path: files[path] for path in late})
            wrote = ", ".join(path.name for path in late)
            up_to_date.append(f"{name}: {f'wrote {wrote}' if late else 'up to date'}")
        else:
            again = f"write it with normlab study publish --results {root}"
            states = {p: "does not match its records" if p.is_file() else "missing" for p in late}
            wrong += [f"{path}: {state}; {again}" for path, state in states.items()]
    return up_to_date, wrong


def _files_of(root: Path, name: Path) -> dict[Path, str]:
    """Return the text of the files generated from all cards, from a study, or for `LITERATURE`."""
    if name == root / BOARD:
        return card_pages(root)
    return (
        {name: literature_page(root, read)} if name == root / LITERATURE else rendered(None, name)
    )


def _unchanged(root: Path, changed: Collection[Path], study: str | None) -> list[Path]:
    """Return what can be made from unchanged evidence: the folders of studies, and the board.

    Raises UserError if no study is published.
    """
    every = [path.parent for path in sorted(root.glob(f"*/*/{RECORDS}"))]
    every = [folder for folder in every if folder.parent.name not in _NO_STUDIES]
    folders = [folder for folder in every if study in (None, folder.parent.name)]
    if not folders and not changed:
        what = "no study is" if study is None else f"the study {load_study(study).name} is not"
        published = ", ".join(sorted({folder.parent.name for folder in every})) or "none"
        again = f"normlab study run {study or 'STUDY'} --publish {root} publishes one"
        raise UserError(f"{what} published below {root} (published: {published}); {again}")
    touched = {folder for path in changed for folder in (path, *path.parents)}
    sources = [folder for folder in folders if folder not in touched]
    if study is None and (root / FOLDER).is_dir() and root / FOLDER not in touched:
        sources.append(root / BOARD)
    if study is None and root / LITERATURE not in touched and (root / LITERATURE).is_file():
        sources.append(root / LITERATURE)
    return sources
