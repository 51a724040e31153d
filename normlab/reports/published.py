"""A study's committed results, `results/<study>/<scale>/`: tables and page are made of them alone.

`runs.json` says which record belongs to which row, point and seed; `records/` holds the records,
their folders shortened to a name, and beside each, where its folder was there to be published, what
curves are drawn from and what its tested weights translated.
"""

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from normlab.records.atomic import atomic_write, only_writer, remove_leftovers
from normlab.records.files import read_json
from normlab.records.hypotheses import PACKED, STEM, packed_hypotheses
from normlab.records.record import RunRecord
from normlab.records.store import MEND_PUBLISHED, RECORD_FILE, RUNS_FILE, read_record
from normlab.reports.manifest import PAGE, accept
from normlab.reports.manifest import read as read_manifest
from normlab.reports.runs import CURVES_FILE, Run, published_curves, read_curves
from normlab.reports.study_page import study_page
from normlab.reports.study_table import build
from normlab.reports.table import comma_separated, latex, markdown
from normlab.studies import Planned, Study

FORMAT = "normlab.study/1"
_PLACES = ("data_dir", "runs_dir")
_RECORDS = "records"
_PLACE = re.compile(r"(\.\./\.\./[\w-]+/[\w-]+/)?records/[\w.+@=,/-]+")
_SHOWN = 3  # of what differs, in one message
_Pairs = Sequence[tuple[Planned, str | None]]
Asked = Mapping[tuple[str, str, int], str | None]
"""The experiment of each run that is published, by row, point and seed; None of one not made."""


def check(root: Path, study: str, scale: str, asked: Asked) -> None:
    """Check that runs can be published beside what a folder holds of the study, and write nothing.

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
    _beside_asked(folder, asked)


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
    hypotheses. What the folder held of other runs is removed; to `add` keeps all of it, rows and
    points that the study has not among them.
    Raises ValueError, before anything is written, for what is damaged of the runs or of what is
    kept, and if another experiment is published at a row and point to which runs are added.
    """
    folder = root / study.name / scale
    asked: dict[tuple[str, str, int], str | None] = {}
    entries: list[dict[str, Any]] = []
    files: dict[Path, bytes] = {}
    for number, (planned, record) in enumerate(runs):
        path = label = None
        if record is not None:
            label = record.run_id.removesuffix(f"-seed{record.seed}")
            path = Path(_RECORDS) / label / f"seed{record.seed}" / RECORD_FILE
            shortened = msgspec.structs.replace(record, config=portable(record.config))
            files[folder / path] = shortened.to_json().encode()
            if folders is not None:
                beside = _beside(folders[number], record)
                files |= {folder / path.with_name(name): kept for name, kept in beside.items()}
        asked[planned.row, planned.point, planned.seed] = label
        entries.append(_entry(planned, path and path.as_posix()))
    with only_writer(folder / RUNS_FILE):
        remove_leftovers(folder, below=True)
        read_manifest(root)  # damage is named
        kept = _beside_asked(folder, asked) if add else None
        lost = _write_all(study, scale, folder, entries, files, kept)
        accept(root, [*files, folder / RUNS_FILE], lost=lost)
    return folder


def _write_all(
    study: Study,
    scale: str,
    folder: Path,
    entries: Sequence[Mapping[str, Any]],
    files: Mapping[Path, bytes],
    kept: _Pairs | None,
) -> list[Path]:
    """Write the files of runs, their list, and what is made of them; return what was removed.

    What is `kept` is listed too, and all other records stay; None keeps nothing.
    """
    for path, content in files.items():
        _write(path, content)
    runs, stay = list(entries), list(files)
    if kept is not None:
        runs = _in_order([*entries, *(_entry(*each) for each in kept)], study.planned(scale))
        written = {path.parent for path in files}
        stay += [path for path in folder.glob(f"{_RECORDS}/*/*/*") if path.parent not in written]
        # Rows that were added to the study after this code, or taken out of it.
        rows = {run.row: () for run, _ in kept if run.row not in study.rows}
        study = replace(study, rows={**study.rows, **rows})
    listed = {"format": FORMAT, "study": study.name, "scale": scale, "runs": runs}
    _write(folder / RUNS_FILE, json.dumps(listed, indent=1, sort_keys=True) + "\n")
    lost = _remove_others(folder, stay)
    for path, text in rendered(study, folder).items():
        _write(path, text)
    return lost


def _beside_asked(folder: Path, asked: Asked) -> _Pairs:
    """Return what is published beside the runs asked for: other rows, points and seeds.

    Raises ValueError as `check` does.
    """
    if not os.path.lexists(folder / RUNS_FILE):
        return []
    there = _content(folder)["runs"]
    wanted = {(row, point): label for (row, point, _), label in asked.items() if label}
    others: dict[tuple[str, str, str], list[str]] = {}
    for run, place in there:
        label = wanted.get((run.row, run.point))
        if place is not None and label is not None and _experiment(place) != label:
            others.setdefault((run.row, run.point, _experiment(place)), []).append(str(run.seed))
    if others:
        raise ValueError(_other_experiments(folder, others, wanted))
    kept = [(run, place) for run, place in there if (run.row, run.point, run.seed) not in asked]
    _all_evidence(folder, kept)  # damage is named
    return kept


def _other_experiments(
    folder: Path,
    others: Mapping[tuple[str, str, str], Sequence[str]],
    wanted: Mapping[tuple[str, str], str],
) -> str:
    """Say which experiments a folder holds at rows and points of others, and what to do."""
    lines = [
        f"{row} {point}".rstrip()
        + f": published is {label} (seed {' '.join(seeds)}), asked for is {wanted[row, point]}"
        for (row, point, label), seeds in others.items()
    ]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"and {len(lines) - _SHOWN} more"]
    return (
        f"{folder} holds other experiments than those asked for ({'; '.join(lines)}): give "
        "--publish another folder, or leave out the overrides that differ; or, to begin anew, as "
        f"with newly tuned rates, remove {folder}, start again, and then "
        f"normlab report --from {folder.parents[1]} --accept {folder}"
    )


def _in_order(
    entries: Sequence[Mapping[str, Any]], plan: Sequence[Planned]
) -> list[Mapping[str, Any]]:
    """Return entries seed by seed, the rows and points of each in the order of the study."""
    order = {cell: n for n, cell in enumerate(dict.fromkeys((p.row, p.point) for p in plan))}
    return sorted(
        entries,
        key=lambda each: (each["seed"], order.get((each["row"], each["point"]), len(order))),
    )


def _entry(planned: Planned, place: str | None) -> dict[str, Any]:
    entry = {"row": planned.row, "point": planned.point, "seed": planned.seed}
    return entry if place is None else {**entry, "record": place}


def _experiment(place: str) -> str:
    return Path(place).parents[1].name


def _beside(run_dir: Path, record: RunRecord) -> dict[str, bytes]:
    """Return what is published of a run beside its record, by the names of the files."""
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
    return str(_content(folder)["study"])


def read(folder: Path) -> tuple[str, list[tuple[Planned, RunRecord | None]]]:
    """Return scale and runs of a published study; ValueError naming each file that is damaged."""
    scale, found = evidence(folder)
    return scale, [(each.planned, each.record) for each in found]


def evidence(folder: Path) -> tuple[str, list[Run]]:
    """Return scale and evidence of a published study; ValueError as in `read`."""
    content = _content(folder)
    return content["scale"], _all_evidence(folder, content["runs"])


def _all_evidence(folder: Path, runs: _Pairs) -> list[Run]:
    found: list[Run] = []
    problems: list[str] = []
    for planned, place in runs:
        try:
            found.append(Run(planned) if place is None else _evidence(folder, planned, place))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return found


def _evidence(folder: Path, planned: Planned, place: str) -> Run:
    path = folder / place
    record = read_record(path, mend=MEND_PUBLISHED)
    if record.seed != planned.seed:
        raise ValueError(
            f"{path}: has seed {record.seed}, and {RUNS_FILE} says {planned.seed}; {MEND_PUBLISHED}"
        )
    curves = tuple(read_curves(path.with_name(CURVES_FILE)))
    return Run(planned, record, place, curves, folder=path.parent)


def _content(folder: Path) -> dict[str, Any]:
    """Read `runs.json`: study, scale, and runs as pairs of what was planned and a path or None."""
    path = folder / RUNS_FILE
    try:
        content = read_json(path)
        if content["format"] != FORMAT:
            raise ValueError(f"format is {content['format']!r}, this version reads {FORMAT!r}")
        runs = [
            (Planned(str(e["row"]), str(e["point"]), int(e["seed"]), ()), _inside(folder, e))
            for e in content["runs"]
        ]
        return {"study": str(content["study"]), "scale": str(content["scale"]), "runs": runs}
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} holds no {RUNS_FILE}: it is no published study") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: damaged ({error!r}); restore it, or remove {folder} and publish the study "
            "again"
        ) from None


def _inside(folder: Path, entry: Mapping[str, Any]) -> str | None:
    """Return the path of an entry's record; ValueError for one that leads elsewhere.

    A study may come from a stranger, and says itself which files are read: records of its own, or
    those that another study published beside it (`../../STUDY/SCALE/records/...`).
    """
    place = entry.get("record")
    if place is None:
        return None
    if not isinstance(place, str) or not _PLACE.fullmatch(place) or "/../" in place[6:]:
        raise ValueError(f"record {place!r:.60} is not below {_RECORDS}/ of a study")
    root = folder.resolve().parents[1] if place.startswith("..") else folder.resolve()
    if not (folder / place).resolve().is_relative_to(root):
        raise ValueError(f"record {place!r:.60} leads out of the study by a link")
    return place


def _remove_others(folder: Path, kept: Collection[Path]) -> list[Path]:
    """Remove what belongs to no run of the study any more; return the files."""
    removed: list[Path] = []
    for name in (RECORD_FILE, CURVES_FILE, f"{STEM}*.txt{PACKED}"):
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


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
