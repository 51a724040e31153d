"""The trials of a tuning in `results/<study>/`: `tuning.json` and its page.

The file has its format and, by scale, every trial. It is no evidence for a claim.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.records.files import atomic_write, only_writer
from normlab.records.record import plain
from normlab.reports.manifest import accept
from normlab.reports.table import pipes

_FORMAT = "normlab.tuning/1"
_DOUBTS = (
    "at the edge of the values, wider ones may be better",
    "beside a value that diverged: a longer run may diverge, too",
    "as good with another value, the first was taken",
)


def publish(root: Path, study: str, scales: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write what tuning found at some scales next to that of others; return the page."""
    path = root / study / "tuning.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(path):
        whole = {"format": _FORMAT, "study": study, "scales": {**read(path), **scales}}
        text = json.dumps(plain(whole), indent=1, sort_keys=True, allow_nan=False) + "\n"
        with atomic_write(path) as file:
            file.write(text)
    page = path.with_suffix(".md")
    with only_writer(page), atomic_write(page) as file:
        file.write(markdown(study, read(path)))
    accept(root, [path, page])
    return page


def read(path: Path) -> dict[str, Any]:
    """Return what was found, by scale; nothing without a file, ValueError for a damaged one."""
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format is {content['format']!r}, this version reads {_FORMAT!r}")
        return dict(content["scales"])
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged ({error!r}); remove it and measure again") from None


def with_others(
    found: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    cells: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Add to what was found for some rows what was known `before` of the others.

    `cells` are all rows and points of the scale, in their order. Raises ValueError if the other
    rows were tuned in another way.
    """
    own = {(row["row"], row["point"]): row for row in found["rows"]}
    kept = {(row["row"], row["point"]): row for row in (before or {}).get("rows", ())}
    others = {cell: row for cell, row in kept.items() if cell not in own and cell in cells}
    if before is not None and others:
        was, now = (dict(plain(each["tuning"])) for each in (before, found))
        for each in (was, now):  # rows that are tuned again may be tried in another way
            whole = each.get("whole_runs", ())
            each["whole_runs"] = [row for row, _ in others if row in whole]
        if changed := [key for key in now if was.get(key) != now[key]]:
            said = "; ".join(f"{key} {was.get(key)}, now {now[key]}" for key in changed)
            raise ValueError(
                f"the other rows were tuned in another way ({said}): tune all rows, without rows="
            )
    both = {**own, **others}
    return {**found, "rows": [both[cell] for cell in cells if cell in both]}


def markdown(study: str, scales: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page: one table per scale, rows by values, with what was chosen."""
    parts = [f"# How the rates of {study} were chosen\n"]
    for scale, found in scales.items():
        parts.append(f"## scale={scale}\n\n{table(found)}\n{''.join(notes(found))}")
    return "\n".join(parts)


def table(found: Mapping[str, Any]) -> str:
    """Return the table of one scale: one line per row and point, one column per value."""
    values: Sequence[str] = found["tuning"]["values"]
    points = any(row["point"] for row in found["rows"])
    lines: list[list[str]] = []
    for row in found["rows"]:
        trials = {trial["value"]: trial for trial in row["trials"]}
        cells = [_cell(trials.get(value)) for value in values]
        chosen = row["chosen"] or ("none" if len(row["trials"]) == len(values) else "-")
        lines.append([row["row"], *([row["point"]] if points else []), *cells, chosen])
    head = ["row", *(["point"] if points else []), *values, "chosen"]
    return "\n".join(pipes(head, lines, words=2 if points else 1, notes=()))


def _cell(trial: Mapping[str, Any] | None) -> str:
    if trial is None:
        return "-"
    if trial["score"] is not None:
        return f"{trial['score']:.4g}"
    at = f" at {trial['step']}" if trial["step"] is not None else ""
    last = f" ({trial['last']:.4g})" if trial["last"] is not None else ""
    return f"{trial['status']}{at}{last}"


def notes(found: Mapping[str, Any]) -> list[str]:
    """Return what a reader of the table must know, one line each."""
    tuning, rows = found["tuning"], found["rows"]
    seeds = ", ".join(map(str, tuning["seeds"]))
    trials = [trial for row in rows for trial in row["trials"]]
    commits = sorted({commit for trial in trials for commit in trial["commits"]})
    more = f", {' '.join(tuning['overrides'])}" if tuning["overrides"] else ""
    whole = ", ".join(tuning.get("whole_runs", []))
    but = f", but for {whole}, tried for whole runs" if whole else ""
    said = [
        f"{tuning['key']} by {tuning['score']} of the last weights, mean over seed {seeds}, which "
        f"no other run has{more}",
        f"the same values, seeds and budget for every row{but}; {len(trials)} trials, "
        f"{sum(trial['seconds'] for trial in trials) / 3600:.1f} h",
        *([f"by commit {', '.join(commits)}"] if commits else []),
    ]
    doubts: dict[str, list[str]] = {what: [] for what in _DOUBTS}
    none: list[str] = []
    for row in rows:
        name = f"{row['row']} @ {row['point']}" if row["point"] else str(row["row"])
        for what in _doubts(row, tuning["values"]):
            doubts[what].append(f"{name}: {row['chosen']}")
        if row["chosen"] is None and len(row["trials"]) == len(tuning["values"]):
            none.append(f"{name}: no value trains")
    said += [f"{what}: {'; '.join(rows)}" for what, rows in doubts.items() if rows]
    return [f"- {each}\n" for each in (*said, *none)]


def _doubts(row: Mapping[str, Any], values: Sequence[str]) -> list[str]:
    """Return why another value than the chosen one may be better for a row."""
    chosen, trials = row["chosen"], row["trials"]
    at = values.index(chosen) if chosen in values else len(values) + 1
    diverged = {trial["value"] for trial in trials if trial["status"] == "diverged"} - {chosen}
    scores = {trial["value"]: trial["score"] for trial in trials}
    best = scores.get(chosen)
    holds = (
        chosen in (values[0], values[-1]),
        not diverged.isdisjoint(values[max(0, at - 1) : at + 2]),
        best is not None and list(scores.values()).count(best) > 1,
    )
    return [what for what, found in zip(_DOUBTS, holds, strict=True) if found]
