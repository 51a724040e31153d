"""A study's committed results, `results/<study>/<scale>/`: tables and page are made of them alone.

`runs.json` says which record belongs to which row, point and seed; `records/` holds the records,
their folders shortened to a name, and next to each, if its folder was there to be published, its
curves and what its tested weights translated.
"""

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from normlab.records.files import atomic_write, only_writer, read_json, remove_leftovers
from normlab.records.record import RunRecord
from normlab.records.store import (
    HYPOTHESES,
    MEND_PUBLISHED,
    PACKED,
    RECORD_FILE,
    RUNS_FILE,
    packed_hypotheses,
    read_record,
)
from normlab.reports.manifest import PAGE, accept
from normlab.reports.manifest import read as read_manifest
from normlab.reports.runs import CURVES_FILE, Run, published_curves, read_curves
from normlab.reports.study_page import study_page
from normlab.reports.study_table import build
from normlab.reports.table import comma_separated, latex, markdown
from normlab.studies import Planned, Study

_PLACES = ("data_dir", "runs_dir")
_RECORDS = "records"
_PLACE = re.compile(r"(\.\./\.\./[\w-]+/[\w-]+/)?records/[\w.+@=,/-]+")
_SHOWN = 3  # of what differs, in one message
Asked = Mapping[tuple[str, str, int], str | None]
"""The experiment of each run that is published, by row, point and seed; None of one not made."""


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run in `runs.json`: its place in the study, and that of its record, None if not made."""

    row: str
    point: str
    seed: int
    record: str | None = None

    @property
    def experiment(self) -> str | None:
        return None if self.record is None else Path(self.record).parents[1].name


class _Listed(msgspec.Struct, frozen=True):
    """The content of `runs.json`."""

    format: Literal["normlab.study/1"]
    study: str
    scale: str
    runs: list[_Entry]


def check(root: Path, study: str, scale: str, asked: Asked) -> None:
    """Check that runs can be published in addition to those of a folder, and write nothing.

    Raises ValueError for a folder that cannot be written, for a list or record that is damaged, and
    for another experiment at a row and point asked for, saying what to do.
    """
    folder = root / study / scale
    for place in (root, folder):
        there = next(path for path in (place, *place.parents) if os.path.lexists(path))
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            wrong = "cannot be written" if there.is_dir() else "is no folder"
            raise ValueError(f"{there} {wrong}: give --publish another folder, or mend this one")
    read_manifest(root)
    _others(folder, asked)


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
    asked: dict[tuple[str, str, int], str | None] = {}
    entries: list[_Entry] = []
    files: dict[Path, bytes] = {}
    for number, (run, record) in enumerate(runs):
        path = label = None
        if record is not None:
            label = record.run_id.removesuffix(f"-seed{record.seed}")
            path = Path(_RECORDS) / label / f"seed{record.seed}" / RECORD_FILE
            shortened = msgspec.structs.replace(record, config=portable(record.config))
            files[folder / path] = shortened.to_json().encode()
            if folders is not None:
                for name, content in _left_by(folders[number], record).items():
                    files[folder / path.with_name(name)] = content
        asked[run.row, run.point, run.seed] = label
        entries.append(_Entry(run.row, run.point, run.seed, path and path.as_posix()))
    with only_writer(folder / RUNS_FILE):
        remove_leftovers(folder, below=True)
        read_manifest(root)  # damage is named
        others = _others(folder, asked) if add else []
        for path, content in files.items():
            _write(path, content)
        stay = set(files)
        if add:
            written = {path.parent for path in files}
            kept = folder.glob(f"{_RECORDS}/*/*/*")
            stay |= {path for path in kept if path.parent not in written}
            places = dict.fromkeys((plan.row, plan.point) for plan in study.planned(scale))
            order = {place: n for n, place in enumerate(places)}
            # Rows that were added to the study after this code, or taken out of it.
            more = {each.row: () for each in others if each.row not in study.rows}
            study = replace(study, rows={**study.rows, **more})
            entries += others
            entries.sort(key=lambda e: (e.seed, order.get((e.row, e.point), len(order))))
        listed = msgspec.to_builtins(_Listed("normlab.study/1", study.name, scale, entries))
        _write(folder / RUNS_FILE, (json.dumps(listed, indent=1, sort_keys=True) + "\n").encode())
        lost = _remove_others(folder, stay)
        for path, text in rendered(study, folder).items():
            _write(path, text.encode())
        accept(root, [*files, folder / RUNS_FILE], lost=lost)
    return folder


def _others(folder: Path, asked: Asked) -> list[_Entry]:
    """Return what is published beyond the runs asked for: other rows, points and seeds.

    Raises ValueError as `check` does.
    """
    if not os.path.lexists(folder / RUNS_FILE):
        return []
    there = _listed(folder).runs
    wanted = {(row, point): label for (row, point, _), label in asked.items() if label}
    seeds: dict[tuple[str, str, str], list[str]] = {}
    for entry in there:
        label = wanted.get((entry.row, entry.point))
        if entry.experiment is not None and label not in (None, entry.experiment):
            key = (entry.row, entry.point, entry.experiment)
            seeds.setdefault(key, []).append(str(entry.seed))
    if seeds:
        lines = [
            f"{row} {point}".rstrip()
            + f": published is {label} (seed {' '.join(own)}), asked for is {wanted[row, point]}"
            for (row, point, label), own in seeds.items()
        ]
        if len(lines) > _SHOWN:
            lines[_SHOWN:] = [f"and {len(lines) - _SHOWN} more"]
        raise ValueError(
            f"{folder} holds other experiments than those asked for ({'; '.join(lines)}): give "
            "--publish another folder, or leave out the overrides that differ; or, to begin anew, "
            f"as with newly tuned rates, remove {folder}, start again, and then "
            f"normlab study publish --results {folder.parents[1]} --accept {folder}"
        )
    found = [entry for entry in there if (entry.row, entry.point, entry.seed) not in asked]
    _evidence(folder, found)  # damage is named
    return found


def _left_by(run_dir: Path, record: RunRecord) -> dict[str, bytes]:
    """Return what is published of a run next to its record, by the names of the files."""
    files = packed_hypotheses(run_dir) if record.finished else {}
    curves = published_curves(run_dir)
    return files if curves is None else {**files, CURVES_FILE: curves.encode()}


def rendered(study: Study, folder: Path) -> dict[Path, str]:
    """Return the text of the files of a published study that are made from its records.

    Raises ValueError naming each file that is damaged, or a row that the study has no longer.
    """
    scale, found = evidence(folder)
    for each in found:
        if each.planned.row not in study.rows:
            raise ValueError(
                f"{folder / RUNS_FILE}: the study {study.name} has no row {each.planned.row!r} "
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


def study_name(folder: Path) -> str:
    """Return the name of a published study; ValueError where the folder holds none."""
    return _listed(folder).study


def read(folder: Path) -> tuple[str, list[tuple[Planned, RunRecord | None]]]:
    """Return scale and runs of a published study; ValueError naming each file that is damaged."""
    scale, found = evidence(folder)
    return scale, [(each.planned, each.record) for each in found]


def evidence(folder: Path) -> tuple[str, list[Run]]:
    """Return scale and evidence of a published study; ValueError as in `read`."""
    listed = _listed(folder)
    return listed.scale, _evidence(folder, listed.runs)


def _evidence(folder: Path, entries: Sequence[_Entry]) -> list[Run]:
    found: list[Run] = []
    problems: list[str] = []
    for entry in entries:
        planned = Planned(entry.row, entry.point, entry.seed, ())
        if entry.record is None:
            found.append(Run(planned))
            continue
        path = folder / entry.record
        try:
            record = read_record(path, mend=MEND_PUBLISHED)
            rows = tuple(read_curves(path.with_name(CURVES_FILE)))
        except ValueError as error:
            problems.append(str(error))
            continue
        found.append(Run(planned, record, entry.record, rows, folder=path.parent))
        if record.seed != entry.seed:
            said = f"has seed {record.seed}, and {RUNS_FILE} says {entry.seed}"
            problems.append(f"{path}: {said}; {MEND_PUBLISHED}")
    if problems:
        raise ValueError("\n".join(problems))
    return found


def _listed(folder: Path) -> _Listed:
    path = folder / RUNS_FILE
    try:
        found = msgspec.convert(read_json(path), _Listed)
        for entry in found.runs:
            _check_place(folder, entry.record)
        return found
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} holds no {RUNS_FILE}: it is no published study") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(
            f"{path}: damaged ({error}); restore it, or remove {folder} and publish the study again"
        ) from None


def _check_place(folder: Path, place: str | None) -> None:
    """Raise ValueError for a record that is not below a published study.

    A study may come from a stranger, and says itself which files are read: records of its own, or
    those that another study published next to it (`../../STUDY/SCALE/records/...`).
    """
    if place is None:
        return
    if not _PLACE.fullmatch(place) or "/../" in place[6:]:
        raise ValueError(f"record {place!r:.60} is not below {_RECORDS}/ of a study")
    root = folder.resolve().parents[1] if place.startswith("..") else folder.resolve()
    if not (folder / place).resolve().is_relative_to(root):
        raise ValueError(f"record {place!r:.60} leads out of the study by a link")


def _remove_others(folder: Path, kept: Collection[Path]) -> list[Path]:
    """Remove what belongs to no run of the study any more; return the files."""
    removed: list[Path] = []
    for name in (RECORD_FILE, CURVES_FILE, f"{HYPOTHESES}*.txt{PACKED}"):
        for path in (folder / _RECORDS).glob(f"*/*/{name}"):
            if path not in kept:
                path.unlink()
                removed.append(path)
                for empty in (path.parent, path.parent.parent):
                    if empty.is_dir() and not any(empty.iterdir()):
                        empty.rmdir()
    return removed


def portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config whose folders are shortened to their last name, at any depth."""
    return {key: _portable(key, value) for key, value in config.items()}


def _portable(key: str, value: Any) -> Any:
    if key in _PLACES and isinstance(value, str):
        return Path(value).name
    if isinstance(value, list):
        return [_portable("", item) for item in value]
    return portable(value) if isinstance(value, Mapping) else value


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "wb") as file:
        file.write(content)
