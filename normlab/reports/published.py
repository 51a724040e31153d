"""A study's committed results, `results/<study>/<scale>/`: tables and page are made of them alone.

The runs are packed (`normlab.records.packed`). The folders in a record are shortened to a name.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from normlab.records.files import only_writer
from normlab.records.packed import MEND_PUBLISHED, PACK, RECORDS, Key, Pack, pack, write_pack
from normlab.records.record import RunRecord, fingerprint
from normlab.records.store import hypotheses_splits, read_hypotheses
from normlab.reports.manifest import PAGE, accept, write_files
from normlab.reports.manifest import read as read_manifest
from normlab.reports.runs import Run, rows_of_run, thinned
from normlab.reports.study_page import study_page
from normlab.reports.study_table import build
from normlab.reports.table import comma_separated, latex, markdown
from normlab.studies import Planned, Study

_PLACES = ("data_dir", "runs_dir")
_SHOWN = 3  # of what differs, in one message
Asked = Mapping[Key, str | None]
"""The experiment of each run that is published; None of one not made."""


def check(root: Path, study: str, scale: str, asked: Asked) -> None:
    """Check that runs can be published in addition to those of a folder, and write nothing.

    Raises ValueError for a folder that cannot be written, for a damaged record, and for another
    experiment at a row and point asked for, saying what to do.
    """
    folder = root / study / scale
    for place in (root, folder):
        there = next(path for path in (place, *place.parents) if os.path.lexists(path))
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            wrong = "cannot be written" if there.is_dir() else "is no folder"
            raise ValueError(f"{there} {wrong}: give --publish another folder, or mend this one")
    read_manifest(root)
    if os.path.lexists(folder / RECORDS):
        _others(pack(folder), asked)


def publish(
    root: Path,
    study: Study,
    scale: str,
    runs: Sequence[tuple[Planned, RunRecord | None]],
    *,
    folders: Sequence[Path] | None = None,
    add: bool = False,
) -> Path:
    """Write records, curves, tables and page, and list them in the manifest; return the folder.

    `folders` are those of the runs, in their order; without them there are neither curves nor
    hypotheses. Other runs in the folder are removed; with `add` all of them stay, also at rows and
    points that the study does not have.
    Raises ValueError, before anything is written, for what is damaged of the runs or of what stays,
    and if another experiment is published at a row and point to which runs are added.
    """
    folder = root / study.name / scale
    keys = [Key(run.row, run.point, run.seed) for run, _ in runs]
    records: dict[Key, RunRecord | None] = {
        key: record and msgspec.structs.replace(record, config=portable(record.config))
        for key, (_, record) in zip(keys, runs, strict=True)
    }
    made = [(key, of) for key, of in zip(keys, folders or (), strict=False) if records[key]]
    curves = {key: thinned(rows_of_run(of)) for key, of in made}
    hypotheses = {
        key: {split: read_hypotheses(of, split) for split in hypotheses_splits(of)}
        for key, of in made
        if (record := records[key]) is not None and record.finished
    }
    with only_writer(folder / RECORDS):
        read_manifest(root)  # damage is named
        if add and os.path.lexists(folder / RECORDS):
            known = pack(folder)
            asked = {key: record and _label(record) for key, record in records.items()}
            records |= {key: known.records[key] for key in _others(known, asked)}
            curves = {key: known.curves[key] for key in known.curves if key not in asked} | curves
            more = {key: own for key, own in known.hypotheses.items() if key not in asked}
            hypotheses = more | hypotheses
            order = {(plan.row, plan.point): n for n, plan in enumerate(study.planned(scale))}
            by_plan = sorted(records, key=lambda k: (k.seed, order.get((k.row, k.point), 10**6)))
            records = {key: records[key] for key in by_plan}
            # Rows that were added to the study after this code, or taken out of it.
            lost = {key.row: () for key in records if key.row not in study.rows}
            study = replace(study, rows={**study.rows, **lost})
        write_pack(folder, records, curves, hypotheses)
        write_files(rendered(study, folder))
        accept(root, [folder / name for name in PACK], named=False)
    return folder


def _label(record: RunRecord) -> str:
    return record.run_id.removesuffix(f"-seed{record.seed}")


def _others(runs: Pack, asked: Asked) -> list[Key]:
    """Return the runs that are published beyond those asked for: other rows, points and seeds.

    Raises ValueError as `check` does.
    """
    wanted = {(key.row, key.point): label for key, label in asked.items() if label}
    seeds: dict[tuple[str, str, str], list[str]] = {}
    _checked(runs, but=asked)
    for key, record in runs.records.items():
        label = wanted.get((key.row, key.point))
        if record is not None and label not in (None, _label(record)):
            seeds.setdefault((key.row, key.point, _label(record)), []).append(str(key.seed))
    if seeds:
        lines = [
            f"{row} {point}".rstrip()
            + f": published is {label} (seed {' '.join(own)}), asked for is {wanted[row, point]}"
            for (row, point, label), own in seeds.items()
        ]
        if len(lines) > _SHOWN:
            lines[_SHOWN:] = [f"and {len(lines) - _SHOWN} more"]
        raise ValueError(
            f"{runs.folder} holds other experiments than those asked for ({'; '.join(lines)}): "
            "give --publish another folder, or leave out the overrides that differ; or, to begin "
            f"anew, as with newly tuned rates, remove {runs.folder}, start again, and then "
            f"normlab study publish --results {runs.folder.parents[1]} --accept {runs.folder}"
        )
    return [key for key in runs.records if key not in asked]


def rendered(study: Study, folder: Path) -> dict[Path, str]:
    """Return the text of the files of a published study that are made from its records.

    Raises ValueError naming each file that is damaged, or a row that the study has no longer.
    """
    scale, found = evidence(folder)
    for each in found:
        if each.planned.row not in study.rows:
            raise ValueError(
                f"{folder / RECORDS}: the study {study.name} has no row {each.planned.row!r} "
                f"(any more): there are {', '.join(study.rows)}; put it back, or remove {folder} "
                "and publish the study again"
            )
    table = build(study, scale, [(each.planned, each.record) for each in found])
    return {
        folder / "table.md": markdown(table),
        folder / "table.tex": latex(table),
        folder / "table.csv": comma_separated(table),
        folder / PAGE: study_page(study, scale, table, found),
    }


def read(folder: Path) -> tuple[str, list[tuple[Planned, RunRecord | None]]]:
    """Return scale and runs of a published study; ValueError naming each record that is damaged."""
    records = _checked(pack(folder)).records
    return folder.name, [(Planned(*key, ()), record) for key, record in records.items()]


def evidence(folder: Path) -> tuple[str, list[Run]]:
    """Return scale and evidence of a published study; ValueError as in `read`."""
    runs = _checked(pack(folder))
    return folder.name, [
        Run(
            Planned(*key, ()),
            record,
            None if record is None else RECORDS,
            runs.curves.get(key, ()),
            folder=None if record is None else runs.address(key),
        )
        for key, record in runs.records.items()
    ]


def _checked(runs: Pack, but: Collection[Key] = ()) -> Pack:
    """Return the runs; ValueError naming each record that is damaged or is of another config.

    `but` are runs that need not be whole.
    """
    if not (runs.folder / RECORDS).exists():
        raise ValueError(f"{runs.folder} holds no {RECORDS}: it is no published study")
    problems = [
        f"{runs.folder / RECORDS}: {record.run_id} has the fingerprint {record.fingerprint}, and "
        f"its config gives {computed}; {MEND_PUBLISHED}"
        for key, record in runs.records.items()
        if record is not None
        if key not in but and (computed := fingerprint(record.config)) != record.fingerprint
    ]
    damaged = [message for message, key in runs.damaged.items() if key is None or key not in but]
    if damaged or problems:
        raise ValueError("\n".join([*damaged, *problems]))
    return runs


def portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config whose folders are shortened to their last name, at any depth."""
    return {key: _portable(key, value) for key, value in config.items()}


def _portable(key: str, value: Any) -> Any:
    if key in _PLACES and isinstance(value, str):
        return Path(value).name
    if isinstance(value, list):
        return [_portable("", item) for item in value]
    return portable(value) if isinstance(value, Mapping) else value
