"""The committed results of a study, `results/<study>/<scale>/`, from which its pages are made.

The runs are packed (`normlab.records.packed`). Folders in their configs are cut to the last name.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace as with_fields

from normlab.records.files import only_writer
from normlab.records.packed import MEND_PUBLISHED, PACK, RECORDS, Key, Pack, pack, write_pack
from normlab.records.record import RunRecord, fingerprint
from normlab.records.store import read_hypotheses
from normlab.reports import manifest
from normlab.reports.gather import Run, rows_of_run, thinned
from normlab.reports.manifest import MANIFEST, PAGE, accept, stale, write_files
from normlab.reports.page import study_page
from normlab.reports.study_table import build
from normlab.reports.table import comma_separated, latex, markdown
from normlab.studies import Planned, Study, load_study

_PLACES = ("data_dir", "runs_dir")
_NO_STUDIES = ("cards", "health")
"""Folders whose runs do not belong to a study."""
Asked = Mapping[Key, str | None]
"""The experiment of each run to publish; None if the run was not made."""


def check(root: Path, study: str, scale: str, asked: Asked) -> None:
    """Check, before any run starts, that the runs can be added to a published folder.

    Raises ValueError for a damaged record or manifest, and if a different experiment is already
    published at one of these rows and points.
    """
    folder = root / study / scale
    manifest.read(root)
    if os.path.lexists(folder / RECORDS):
        _others(pack(folder), asked)


def publish(
    root: Path, study: Study, scale: str, runs: Sequence[Run], *, add: bool = False
) -> Path:
    """Write records, curves, tables and page, and list them in the manifest; return the folder.

    Runs without a folder get no curves or hypotheses. Other runs in the published folder are
    removed; with `add` they all stay, even at rows and points that the study no longer has. Raises
    ValueError before writing anything if runs are damaged or `check` would fail.
    """
    folder = root / study.name / scale
    asked = {run.key: run for run in runs}
    records = {
        key: run.record and with_fields(run.record, config=portable(run.record.config))
        for key, run in asked.items()
    }
    made = {key: run.folder for key, run in asked.items() if run.record and run.folder}
    curves = {key: thinned(rows_of_run(of)) for key, of in made.items()}
    hypotheses = {
        key: read_hypotheses(of)
        for key, of in made.items()
        if (record := records[key]) is not None and record.finished
    }
    with only_writer(folder / RECORDS):
        manifest.read(root)  # raises if it is damaged
        if add and os.path.lexists(folder / RECORDS):
            known = pack(folder)
            labels = {key: record and _label(record) for key, record in records.items()}
            kept = _others(known, labels)
            records |= {key: known.records[key] for key in kept}
            curves |= {key: known.curves[key] for key in kept if key in known.curves}
            hypotheses |= {key: known.hypotheses[key] for key in kept if key in known.hypotheses}
            order = {(plan.row, plan.point): n for n, plan in enumerate(study.planned(scale))}
            by_plan = sorted(records, key=lambda k: (k.seed, order.get((k.row, k.point), 10**6)))
            records = {key: records[key] for key in by_plan}
            # Rows that this version of the study lacks: removed since, or added in a later one.
            lost = {key.row: () for key in records if key.row not in study.rows}
            study = replace(study, rows={**study.rows, **lost})
        write_pack(folder, records, curves, hypotheses)
        write_files(rendered(study, folder))
        accept(root, [folder / name for name in PACK], named=False)
    return folder


def _label(record: RunRecord) -> str:
    return record.run_id.removesuffix(f"-seed{record.seed}")


def _others(runs: Pack, asked: Asked) -> list[Key]:
    """Return the keys of published runs that are not in `asked`; ValueError like `check`."""
    _checked(runs)
    wanted = {(key.row, key.point): label for key, label in asked.items() if label}
    for key, record in runs.records.items():
        label = wanted.get((key.row, key.point))
        if record and label not in (None, _label(record)):
            raise ValueError(
                f"{runs.folder} holds other experiments ({key.name}: published is "
                f"{_label(record)}, this run is {label}): remove the overrides that differ, or "
                "give --publish another folder"
            )
    return [key for key in runs.records if key not in asked]


def rendered(study: Study | None, folder: Path) -> dict[Path, str]:
    """Return the text of all files that are generated from a published study's records, by path.

    Without `study`, the folder names it. Raises ValueError naming each damaged file, a study that
    does not exist, or a row that the study no longer has.
    """
    try:
        study = study or load_study(folder.parent.name)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    runs, scale = read(folder), folder.name
    if lost := {run.planned.row for run in runs} - {*study.rows}:
        raise ValueError(
            f"{folder / RECORDS}: the study {study.name} has no row {min(lost)!r} (any more), "
            f"only {', '.join(study.rows)}; put it back, or remove {folder} and publish again"
        )
    table = build(study, scale, runs)
    return {
        folder / "table.md": markdown(table),
        folder / "table.tex": latex(table),
        folder / "table.csv": comma_separated(table),
        folder / PAGE: study_page(study, scale, table, runs, folder),
    }


def read(folder: Path) -> list[Run]:
    """Return the runs of a published study; raises ValueError naming each damaged record."""
    runs = _checked(pack(folder))
    return [
        Run(Planned(*key, ()), record, runs.curves.get(key, ()), record and runs.addresses[key])
        for key, record in runs.records.items()
    ]


def _checked(runs: Pack) -> Pack:
    """Return the runs; raises ValueError naming records that do not match their config."""
    path = runs.folder / RECORDS
    if not path.exists():
        raise ValueError(f"{runs.folder} has no {RECORDS}: it is not a published study")
    wrong = [
        f"{path}: {record.run_id} does not have its config's fingerprint; {MEND_PUBLISHED}"
        for record in runs.records.values()
        if record and fingerprint(record.config) != record.fingerprint
    ]
    if wrong:
        raise ValueError("\n".join(wrong))
    return runs


def portable(node: Any, key: str = "") -> Any:
    """Return a config with each folder, at any depth, shortened to its last name."""
    if isinstance(node, Mapping):
        return {name: portable(value, name) for name, value in node.items()}
    if isinstance(node, list):
        return [portable(item) for item in node]
    return Path(node).name if key in _PLACES and isinstance(node, str) else node


Made = tuple[Path, Callable[[], Mapping[Path, str]], str]
"""A set of generated files: its name, its files, and the command that generates them."""


def verify(
    root: Path, study: str | None = None, *, write: bool = False
) -> tuple[list[str], list[str]]:
    """Check the evidence below a folder, and the tables and pages made from it.

    Returns two lists of lines: what is up to date or was written, and what is wrong. With `write`,
    outdated files are regenerated, except for studies whose evidence changed after publication.
    `study` limits the check to one study. Raises ValueError if no study is published.
    """
    changed = manifest.by_file(root)
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
    for name, make, made_by in _made(root, changed, study) if known else ():
        try:
            files = make()
        except ValueError as error:
            wrong += str(error).splitlines()
            continue
        late = stale(files)
        if write or not late:
            write_files({path: files[path] for path in late})
            wrote = ", ".join(path.name for path in late)
            said.append(f"{name}: {f'wrote {wrote}' if late else 'up to date'}")
        else:
            states = {p: "does not match its records" if p.is_file() else "missing" for p in late}
            wrong += [f"{path}: {state}; write it with {made_by}" for path, state in states.items()]
    return said, wrong


def _made(root: Path, changed: Collection[Path], study: str | None) -> list[Made]:
    """Return the files made from unchanged evidence; raises ValueError if no study is published."""
    from normlab.reports.cards import BOARD, FOLDER, card_pages

    every = [path.parent for path in sorted(root.glob(f"*/*/{RECORDS}"))]
    every = [folder for folder in every if folder.parent.name not in _NO_STUDIES]
    folders = [folder for folder in every if study in (None, folder.parent.name)]
    if not folders and not changed:
        what = "no study is" if study is None else f"the study {load_study(study).name} is not"
        there = ", ".join(sorted({folder.parent.name for folder in every})) or "none"
        again = f"normlab study run {study or 'STUDY'} --publish {root} publishes one"
        raise ValueError(f"{what} published below {root} (published: {there}); {again}")
    touched = {folder for path in changed for folder in (path, *path.parents)}
    again = "normlab study publish"
    found: list[Made] = [
        (folder, partial(rendered, None, folder), f"{again} {folder.parent.name} --results {root}")
        for folder in folders
        if folder not in touched
    ]
    if study is None and (root / FOLDER).is_dir() and root / FOLDER not in touched:
        found.append((root / BOARD, partial(card_pages, root), again))
    return found
