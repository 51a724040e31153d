"""A study's committed results, `results/<study>/<scale>/`: every table can be made again of them.

`runs.json` says which record belongs to which row, point and seed; `records/` holds the records,
their folders shortened to a name. The tables are functions of these alone.
"""

import json
from collections.abc import Mapping, Sequence
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


def publish(
    root: Path, study: Study, scale: str, runs: Sequence[tuple[Planned, RunRecord | None]]
) -> Path:
    """Write records, tables and what they are made of; return the folder."""
    folder = root / study.name / scale
    entries: list[dict[str, Any]] = []
    for planned, record in runs:
        entry = {"row": planned.row, "point": planned.point, "seed": planned.seed}
        if record is not None:
            label = record.run_id.removesuffix(f"-seed{record.seed}")
            path = Path("records") / label / f"seed{record.seed}" / RECORD_FILE
            _write(folder / path, replace(record, config=portable(record.config)).to_json())
            entry["record"] = path.as_posix()
        entries.append(entry)
    content = {"format": FORMAT, "study": study.name, "scale": scale, "runs": entries}
    _write(folder / RUNS_FILE, json.dumps(content, indent=1, sort_keys=True) + "\n")
    for name, text in rendered(study, folder).items():
        _write(folder / name, text)
    return folder


def rendered(study: Study, folder: Path) -> dict[str, str]:
    """Return the files of a published study that are made from its records, by name."""
    scale, runs = read(folder)
    table = build(study, scale, runs)
    return {
        "table.md": markdown(table),
        "table.tex": latex(table),
        "table.csv": comma_separated(table),
    }


def read(folder: Path) -> tuple[str, list[tuple[Planned, RunRecord | None]]]:
    """Return scale and runs of a published study; ValueError naming a file that is damaged."""
    path = folder / RUNS_FILE
    try:
        content = json.loads(path.read_text("utf-8"))
        entries = [
            (Planned(e["row"], e["point"], e["seed"], ()), e.get("record")) for e in content["runs"]
        ]
        scale = str(content["scale"])
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no {RUNS_FILE}: it is no published study") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged ({error!r}); publish the study again") from None
    return scale, [
        (planned, None if place is None else read_record(folder / place))
        for planned, place in entries
    ]


def portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config whose folders are shortened to their last name, at any depth."""
    return {key: _portable(key, value) for key, value in config.items()}


def _portable(key: str, value: Any) -> Any:
    if key in _PLACES and isinstance(value, str):
        return Path(value).name
    return portable(value) if isinstance(value, Mapping) else value


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(text)
