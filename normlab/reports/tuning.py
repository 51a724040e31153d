"""How the rates of a study were chosen: `results/<study>/tuning.json`, and the page made of it.

The file has every trial: its value, what became of it, its score by seed, its commit.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.records.atomic import only_writer
from normlab.reports.manifest import accept
from normlab.reports.pilots import keep, read, write


def publish(root: Path, study: str, scales: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write what tuning found at some scales beside that of others; return the page."""
    path = keep(root, study, "tuning", scales)
    page = path.with_suffix(".md")
    with only_writer(page):
        write(page, markdown(study, read(path)))
    accept(root, [page])
    return page


def with_others(
    found: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    cells: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Add to what was found for some rows what is kept `before` of the others.

    `cells` are all rows and points of the scale, in their order. ValueError where the others were
    tuned in another way, as a table is of one.
    """
    own = {(row["row"], row["point"]): row for row in found["rows"]}
    kept = {(row["row"], row["point"]): row for row in (before or {}).get("rows", ())}
    others = {cell: row for cell, row in kept.items() if cell not in own and cell in cells}
    if before is not None and others:
        rows = {row for row, _ in others}
        was, now = (_ways(each["tuning"], rows) for each in (before, found))
        if changed := [key for key in now if was.get(key) != now[key]]:
            said = "; ".join(f"{key} {was.get(key)}, now {now[key]}" for key in changed)
            raise ValueError(
                f"the other rows were tuned in another way ({said}): tune all rows, without rows="
            )
    both = {**own, **others}
    return {**found, "rows": [both[cell] for cell in cells if cell in both]}


def _ways(tuning: Mapping[str, Any], rows: Collection[str]) -> dict[str, Any]:
    """Return what tuning is for some rows, by its keys, as lists of text and numbers."""
    whole = [row for row in tuning.get("whole_runs", ()) if row in rows]
    return {
        key: list(value) if isinstance(value, list | tuple) else value
        for key, value in {**tuning, "whole_runs": whole}.items()
    }


def markdown(study: str, scales: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page: a table a scale, rows by values, with what was chosen."""
    parts = [f"# How the rates of {study} were chosen\n"]
    for scale, found in scales.items():
        parts.append(f"## scale={scale}\n\n{table(found)}\n{''.join(notes(found))}")
    return "\n".join(parts)


def table(found: Mapping[str, Any]) -> str:
    """Return the table of one scale: a line a row and point, a column a value."""
    values: Sequence[str] = found["tuning"]["values"]
    points = any(row["point"] for row in found["rows"])
    head = ["row", *(["point"] if points else []), *values, "chosen"]
    rules = ["---"] * (2 if points else 1) + ["---:"] * len(values) + ["---:"]
    lines = [head, rules]
    for row in found["rows"]:
        trials = {trial["value"]: trial for trial in row["trials"]}
        cells = [_cell(trials.get(value)) for value in values]
        chosen = row["chosen"] or ("none" if _over(row, values) else "-")
        lines.append([row["row"], *([row["point"]] if points else []), *cells, chosen])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def notes(found: Mapping[str, Any]) -> list[str]:
    """Return what a reader of the table must know, a line each."""
    tuning = found["tuning"]
    seeds = ", ".join(map(str, tuning["seeds"]))
    trials = [trial for row in found["rows"] for trial in row["trials"]]
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
        *_those("at the edge of the values, wider ones may be better", found, _at_edge),
        *_those(
            "beside a value that diverged: a longer run may diverge, too", found, _near_divergence
        ),
        *_those("as good with another value, the first was taken", found, _tied),
        *(
            f"{_name(row)}: no value trains"
            for row in found["rows"]
            if row["chosen"] is None and _over(row, tuning["values"])
        ),
    ]
    return [f"- {each}\n" for each in said]


def _those(
    what: str, found: Mapping[str, Any], holds: Callable[[Mapping[str, Any], Sequence[str]], bool]
) -> list[str]:
    """Name in a line the rows for which something holds, with what they chose."""
    rows = [row for row in found["rows"] if holds(row, found["tuning"]["values"])]
    named = "; ".join(f"{_name(row)}: {row['chosen']}" for row in rows)
    return [f"{what}: {named}"] if rows else []


def _at_edge(row: Mapping[str, Any], values: Sequence[str]) -> bool:
    return row["chosen"] in (values[0], values[-1])


def _near_divergence(row: Mapping[str, Any], values: Sequence[str]) -> bool:
    if row["chosen"] not in values:
        return False
    at = values.index(row["chosen"])
    beside = {*values[max(0, at - 1) : at], *values[at + 1 : at + 2]}
    return any(t["status"] == "diverged" and t["value"] in beside for t in row["trials"])


def _tied(row: Mapping[str, Any], values: Sequence[str]) -> bool:
    scores = {trial["value"]: trial["score"] for trial in row["trials"]}
    best = scores.get(row["chosen"])
    return best is not None and list(scores.values()).count(best) > 1


def _over(row: Mapping[str, Any], values: Sequence[str]) -> bool:
    return len(row["trials"]) == len(values)


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['row']} @ {row['point']}" if row["point"] else str(row["row"])


def _cell(trial: Mapping[str, Any] | None) -> str:
    if trial is None:
        return "-"
    if trial["score"] is not None:
        return f"{trial['score']:.4g}"
    at = f" at {trial['step']}" if trial["step"] is not None else ""
    last = f" ({trial['last']:.4g})" if trial["last"] is not None else ""
    return f"{trial['status']}{at}{last}"
