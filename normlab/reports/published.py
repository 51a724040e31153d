"""The committed results of a study, `results/<study>/<scale>/`, from which its pages are made.

The runs are packed (`normlab.records.packed`), with folders in configs shortened to their names.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as with_fields

from normlab.errors import UserError
from normlab.records.files import only_writer
from normlab.records.packed import MEND_PUBLISHED, PACK, RECORDS, Key, Pack, pack, write_pack
from normlab.records.record import Row, RunRecord, fingerprint
from normlab.records.store import read_hypotheses
from normlab.reports import manifest
from normlab.reports.cards import BOARD, FOLDER, card_pages
from normlab.reports.gather import Run, rows_of_run, thinned
from normlab.reports.manifest import MANIFEST, PAGE, accept, stale, write_files
from normlab.reports.page import study_page
from normlab.reports.study_table import build
from normlab.reports.table import comma_separated, latex, markdown
from normlab.studies.load import load_study
from normlab.studies.study import Study

_PLACES = ("data_dir", "runs_dir")
_NO_STUDIES = ("cards", "health")
"""Folders whose runs do not belong to a study."""


def check(root: Path, study: str, scale: str, asked: Mapping[Key, str | None]) -> Pack:
    """Return the published runs after checking that others can be added.

    `asked` maps the keys of the others to their experiment, or to None for a run not made.
    Raises UserError for a damaged record or manifest, and if a different experiment is already
    published at one of these rows and points.
    """
    manifest.read(root)
    runs = _checked(pack(root / study / scale))
    wanted = {(key.row, key.point): label for key, label in asked.items() if label}
    for key, record in runs.records.items():
        label = wanted.get((key.row, key.point))
        if record and label not in (None, _label(record)):
            raise UserError(
                f"{runs.folder} holds different experiments ({key.name}: published is "
                f"{_label(record)}, this run is {label}): remove the overrides that differ, or "
                "give --publish another folder"
            )
    return runs


def publish(root: Path, study: Study, scale: str, runs: Sequence[Run]) -> Path:
    """Add runs to the published ones, rewrite tables and page, and return the folder.

    Runs without a folder get no curves or hypotheses. Runs that are already published all stay,
    even at rows and points that the study no longer has. Raises UserError before writing anything
    if runs are damaged or `check` would fail.
    """
    folder = root / study.name / scale
    records: dict[Key, RunRecord | None] = {}
    curves: dict[Key, list[Row]] = {}
    hypotheses: dict[Key, dict[str, list[str]]] = {}
    for run in runs:
        record = run.record and with_fields(run.record, config=portable(run.record.config))
        made = run.folder if record else None
        records[run.key] = record
        curves[run.key] = thinned(rows_of_run(made)) if made else []
        tested = made if record and record.finished else None
        hypotheses[run.key] = read_hypotheses(tested) if tested else {}
    with only_writer(folder / RECORDS):
        labels = {key: record and _label(record) for key, record in records.items()}
        known = check(root, study.name, scale, labels)
        order = {(plan.row, plan.point): n for n, plan in enumerate(study.planned(scale))}
        every = known.records | records
        by_plan = sorted(every, key=lambda k: (k.seed, order.get((k.row, k.point), 10**6)))
        # Rows that this version of the study lacks: removed since, or added in a later one.
        lost = {key.row: () for key in every if key.row not in study.rows}
        study = replace(study, rows={**study.rows, **lost})
        ordered = {key: every[key] for key in by_plan}
        write_pack(folder, ordered, known.curves | curves, known.hypotheses | hypotheses)
        write_files(rendered(study, folder))
        accept(root, [folder / name for name in PACK], named=False)
    return folder


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
    table = build(study, scale, runs)
    return {
        folder / "table.md": markdown(table),
        folder / "table.tex": latex(table),
        folder / "table.csv": comma_separated(table),
        folder / PAGE: study_page(study, scale, table, runs, folder),
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


def portable(node: Any, key: str = "") -> Any:
    """Return a config with each folder, at any depth, shortened to its last component."""
    if isinstance(node, Mapping):
        return {name: portable(value, name) for name, value in node.items()}
    if isinstance(node, list):
        return [portable(item) for item in node]
    return Path(node).name if key in _PLACES and isinstance(node, str) else node


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
    said: list[str] = []
    wrong = [*changed.values()]
    if changed:
        wrong.append(
            "restore these files; or, if the change is intended, accept it with normlab study "
            f"publish --results {root} --accept PATH"
        )
    for name in _unchanged(root, changed, study) if known else ():
        try:
            files = card_pages(root) if name == root / BOARD else rendered(None, name)
        except UserError as error:
            wrong += str(error).splitlines()
            continue
        late = stale(files)
        if write or not late:
            write_files({path: files[path] for path in late})
            wrote = ", ".join(path.name for path in late)
            said.append(f"{name}: {f'wrote {wrote}' if late else 'up to date'}")
        else:
            again = f"write it with normlab study publish --results {root}"
            states = {p: "does not match its records" if p.is_file() else "missing" for p in late}
            wrong += [f"{path}: {state}; {again}" for path, state in states.items()]
    return said, wrong


def _unchanged(root: Path, changed: Collection[Path], study: str | None) -> list[Path]:
    """Return what can be made from unchanged evidence: the folders of studies, and the board.

    Raises UserError if no study is published.
    """
    every = [path.parent for path in sorted(root.glob(f"*/*/{RECORDS}"))]
    every = [folder for folder in every if folder.parent.name not in _NO_STUDIES]
    folders = [folder for folder in every if study in (None, folder.parent.name)]
    if not folders and not changed:
        what = "no study is" if study is None else f"the study {load_study(study).name} is not"
        there = ", ".join(sorted({folder.parent.name for folder in every})) or "none"
        again = f"normlab study run {study or 'STUDY'} --publish {root} publishes one"
        raise UserError(f"{what} published below {root} (published: {there}); {again}")
    touched = {folder for path in changed for folder in (path, *path.parents)}
    found = [folder for folder in folders if folder not in touched]
    if study is None and (root / FOLDER).is_dir() and root / FOLDER not in touched:
        found.append(root / BOARD)
    return found
