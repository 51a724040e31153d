"""What is measured before a study, in `results/<study>/`, apart from the records of its runs.

`tuning.json` says how rates were chosen, `pilot.json` what runs cost and which differences they
could show. Neither is evidence for a claim. A file has its format and, by scale, what was found.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from normlab.records.atomic import atomic_write, only_writer
from normlab.records.canonical import plain
from normlab.reports.manifest import accept

_VERSION = 1


def keep(root: Path, study: str, name: str, found: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write what was found at some scales beside that of others; return the file."""
    path = root / study / f"{name}.json"
    with only_writer(path):
        whole = {"format": _format(name), "study": study, "scales": {**read(path), **found}}
        write(path, json.dumps(plain(whole), indent=1, sort_keys=True, allow_nan=False) + "\n")
    accept(root, [path])
    return path


def read(path: Path) -> dict[str, Any]:
    """Return what was found, by scale; nothing without a file, ValueError for a damaged one."""
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != _format(path.stem):
            expected = _format(path.stem)
            raise ValueError(f"format is {content['format']!r}, this version reads {expected!r}")
        return dict(content["scales"])
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged ({error!r}); remove it and measure again") from None


def write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(text)


def costs(
    items: Iterable[tuple[str, str, Mapping[str, Any] | None, float]],
    before: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return what runs cost: of row, point, what a probe measured, and the seconds of a run.

    Costs known `before` stay, of rows and points that are not measured anew.
    """
    rows = [
        {
            "row": row,
            "point": point,
            "seconds": round(seconds, 1),
            "update_seconds": cost["update_seconds"],
            "memory_bytes": cost["memory_bytes"],
            "environment": cost["environment"],
        }
        for row, point, cost, seconds in items
        if cost is not None
    ]
    once = {(each["row"], each["point"]): each for each in (*before, *rows)}
    return {"runs": list(once.values())}


def _format(name: str) -> str:
    return f"normlab.{name}/{_VERSION}"
