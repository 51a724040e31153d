"""A study's committed results, `results/<study>/<scale>/`: every table can be made again of them.

`runs.json` says which record belongs to which row, point and seed; `records/` holds the records,
their folders shortened to a name. The tables are functions of these alone.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from normlab.records.atomic import atomic_write
from normlab.records.record import RunRecord
from normlab.records.store import RECORD_FILE, read_record
from normlab.reports.render import comma_separated, latex, markdown
from normlab.reports.table import build
from normlab.studies import Planned, Study

RUNS_FILE = "runs.json"
FORMAT = "normlab.study/1"
_PLACES = ("data_dir", "runs_dir")
_RECORDS = "records"


def publish(
    root: Path, study: Study, scale: str, runs: Sequence[tuple[Planned, RunRecord | None]]
) -> Path:
    """Write records, tables and what they are made of; return the folder.

    Records that the folder held before and the table is no longer made of are removed.
    """
    folder = root / study.name / scale
    entries: list[dict[str, Any]] = []
    for planned, record in runs:
        entry = {"row": planned.row, "point": planned.point, "seed": planned.seed}
        if record is not None:
            label = record.run_id.removesuffix(f"-seed{record.seed}")
            path = Path(_RECORDS) / label / f"seed{record.seed}" / RECORD_FILE
            _write(folder / path, replace(record, config=portable(record.config)).to_json())
            entry["record"] = path.as_posix()
        entries.append(entry)
    content = {"format": FORMAT, "study": study.name, "scale": scale, "runs": entries}
    _write(folder / RUNS_FILE, json.dumps(content, indent=1, sort_keys=True) + "\n")
    _remove_others(folder, {folder / entry["record"] for entry in entries if "record" in entry})
    for name, text in rendered(study, folder).items():
        _write(folder / name, text)
    return folder


def rendered(study: Study, folder: Path) -> dict[str, str]:
    """Return the files of a published study that are made from its records, by name.

    Raises ValueError naming each file that is damaged, or a row that the study has no longer.
    """
    scale, runs = read(folder)
    for planned, _ in runs:
        if planned.row not in study.rows:
            raise ValueError(
                f"{folder / RUNS_FILE}: the study {study.name} has no row {planned.row!r} (any "
                f"more): there are {', '.join(study.rows)}; publish it again"
            )
    table = build(study, scale, runs)
    return {
        "table.md": markdown(table),
        "table.tex": latex(table),
        "table.csv": comma_separated(table),
    }


def write(study: Study, folder: Path) -> list[Path]:
    """Bring the tables of a published study up to date; return the files that were not."""
    stale = differing(study, folder)
    for path, text in stale.items():
        _write(path, text)
    return list(stale)


def differing(study: Study, folder: Path) -> dict[Path, str]:
    """Return the files that are missing or not what the records say, and what they should be."""
    files = {folder / name: text for name, text in rendered(study, folder).items()}
    return {
        path: text
        for path, text in files.items()
        if not path.is_file() or path.read_bytes() != text.encode()
    }


def study_name(folder: Path) -> str:
    """Return the name of a published study; ValueError where the folder holds none."""
    return str(_content(folder)["study"])


def read(folder: Path) -> tuple[str, list[tuple[Planned, RunRecord | None]]]:
    """Return scale and runs of a published study; ValueError naming each file that is damaged."""
    content = _content(folder)
    runs: list[tuple[Planned, RunRecord | None]] = []
    problems: list[str] = []
    for planned, place in content["runs"]:
        try:
            record = None if place is None else _record(folder / place, planned)
        except ValueError as error:
            problems.append(str(error))
        else:
            runs.append((planned, record))
    if problems:
        raise ValueError("\n".join(problems))
    return content["scale"], runs


def _record(path: Path, planned: Planned) -> RunRecord:
    record = read_record(path)
    if record.seed != planned.seed:
        raise ValueError(
            f"{path}: has seed {record.seed}, and {RUNS_FILE} says {planned.seed}; publish again"
        )
    return record


def _content(folder: Path) -> dict[str, Any]:
    """Read `runs.json`: study, scale, and runs as pairs of what was planned and a path or None."""
    path = folder / RUNS_FILE
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format is {content['format']!r}, this version reads {FORMAT!r}")
        runs = [
            (Planned(str(e["row"]), str(e["point"]), int(e["seed"]), ()), e.get("record"))
            for e in content["runs"]
        ]
        return {"study": str(content["study"]), "scale": str(content["scale"]), "runs": runs}
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} holds no {RUNS_FILE}: it is no published study") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: damaged ({error!r}); publish the study again") from None


def _remove_others(folder: Path, kept: Collection[Path]) -> None:
    for path in (folder / _RECORDS).glob(f"*/*/{RECORD_FILE}"):
        if path not in kept:
            path.unlink()
            for empty in (path.parent, path.parent.parent):
                if not any(empty.iterdir()):
                    empty.rmdir()


def portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config whose folders are shortened to their last name, at any depth."""
    return {key: _portable(key, value) for key, value in config.items()}


def _portable(key: str, value: Any) -> Any:
    if key in _PLACES and isinstance(value, str):
        return Path(value).name
    if isinstance(value, list):
        return [_portable("", item) for item in value]
    return portable(value) if isinstance(value, Mapping) else value


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(text)
