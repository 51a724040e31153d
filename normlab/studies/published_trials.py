"""The published tuning trials of a study: `results/<study>/tuning.json`, by scale, and a page.

Trials are not evidence for any claim.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.errors import UserError
from normlab.formats import pipes
from normlab.metrics.rate_sensitivity import rate_sensitivity
from normlab.records.files import only_writer
from normlab.records.manifest import accept, write_files
from normlab.records.point import place_text
from normlab.records.record import plain

_FORMAT = "normlab.tuning/1"


def publish(root: Path, study: str, scales: Mapping[str, Mapping[str, Any]]) -> Path:
    """Add the trials of some scales to the published ones. Rewrite the page and return its path."""
    path = root / study / "tuning.json"
    page = path.with_suffix(".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(path):
        every = {**read(path), **scales}
        whole = plain({"format": _FORMAT, "study": study, "scales": every})
        text = json.dumps(whole, indent=1, sort_keys=True, allow_nan=False) + "\n"
        write_files({path: text, page: page_text(study, every)})
    accept(root, [path, page])
    return page


def page_text(study: str, scales: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of a study's trials, in Markdown."""
    parts = [f"# How the rates of {study} were chosen\n"]
    for scale, trials in sorted(scales.items()):
        parts.append(f"## scale={scale}\n\n{table(trials)}\n{''.join(notes(trials))}")
    return "\n".join(parts)


def read(path: Path) -> dict[str, Any]:
    """Return the published trials by scale, or {} if there is no file.

    Raises UserError if the file is damaged.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format is {content['format']!r}, this version reads {_FORMAT!r}")
        return dict(content["scales"])
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error!r}); remove it and tune again") from None


def untrainable(trials: Mapping[str, Any]) -> set[str]:
    """Return the rows of a scale, with their points, that no value trains: all have been tried."""
    values = trials["tuning"]["values"]
    return {
        place_text(row["row"], row["point"])
        for row in trials["rows"]
        if row["chosen"] is None and len(row["trials"]) == len(values)
    }


def with_others(
    tuned: Mapping[str, Any], before: Mapping[str, Any] | None, places: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Add the previously tuned rows, `before`, to the rows tuned now.

    `places` lists all rows and points of the scale, in order. Raises UserError if the rows of
    `before` were tuned differently.
    """
    rows = {(row["row"], row["point"]): row for row in tuned["rows"]}
    earlier = {(row["row"], row["point"]): row for row in (before or {}).get("rows", ())}
    others = {at: row for at, row in earlier.items() if at not in rows and at in places}
    if before and others and plain(before["tuning"]) != plain(tuned["tuning"]):
        raise UserError("the other rows were tuned differently; tune all rows, without rows=")
    both = {**rows, **others}
    return {**tuned, "rows": [both[at] for at in places if at in both]}


def table(tuned: Mapping[str, Any]) -> str:
    """Return a scale's trials in Markdown, with a line per row and point and a column per value.

    If learning rates are compared by the loss, the last column is the sensitivity to the rate.
    """
    values: Sequence[str] = tuned["tuning"]["values"]
    sensitivities = [sensitivity(tuned["tuning"], row) for row in tuned["rows"]]
    sensitive = any(each is not None for each in sensitivities)
    points = any(row["point"] for row in tuned["rows"])
    lines: list[list[str]] = []
    for row, sensitive_by in zip(tuned["rows"], sensitivities, strict=True):
        trials = {trial["value"]: _text(trial) for trial in row["trials"]}
        chosen = row["chosen"] or ("none" if len(trials) == len(values) else "-")
        name = [row["row"], row["point"]] if points else [row["row"]]
        last = "-" if sensitive_by is None else f"{sensitive_by:.3g}"
        cells = [*name, *(trials.get(value, "-") for value in values), chosen]
        lines.append([*cells, *([last] if sensitive else [])])
    name = ["row", "point"] if points else ["row"]
    head = [*name, *values, "chosen", *(["sensitivity"] if sensitive else [])]
    return "\n".join(pipes(head, lines, words=len(name)))


def sensitivity(tuning: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    """Return the sensitivity of a row's loss to the learning rate (`rate_sensitivity`).

    Return None unless learning rates were compared by `valid/loss` and all of them were tried. Also
    return None if a trial was stopped early, or diverged and the loss before training is unknown.
    """
    trials: Sequence[Mapping[str, Any]] = row["trials"]
    compared = (tuning["key"], tuning["score"]) == ("optim.lr", "valid/loss")
    ended = {"finished", "diverged"} >= {trial["status"] for trial in trials}
    if not compared or not ended or len(trials) < len(tuning["values"]):
        return None
    firsts = [first for trial in trials if (first := trial.get("first_loss")) is not None]
    return rate_sensitivity([trial["score"] for trial in trials], min(firsts, default=None))


def _text(trial: Mapping[str, Any]) -> str:
    if trial["score"] is not None:
        return f"{trial['score']:.4g}"
    at = f" at {trial['step']}" if trial["step"] is not None else ""
    last = f" ({trial['last']:.4g})" if trial.get("last") is not None else ""
    return f"{trial['status']}{at}{last}"


def notes(tuned: Mapping[str, Any]) -> list[str]:
    """Return the notes below the table, one line each."""
    tuning, rows = tuned["tuning"], tuned["rows"]
    trials = [trial for row in rows for trial in row["trials"]]
    commits = sorted({commit for trial in trials for commit in trial["commits"]})
    more = f", {' '.join(tuning['overrides'])}" if tuning["overrides"] else ""
    whole = ", ".join(tuning.get("whole_runs", []))
    but = f", but for {whole}, tried for whole runs" if whole else ""
    values = tuning["values"]
    edge = [row["row"] for row in rows if row["chosen"] in (values[0], values[-1])]
    lines = [
        f"{tuning['key']} by {tuning['score']} of the last weights, mean over seed "
        f"{', '.join(map(str, tuning['seeds']))}, which no other run has{more}",
        f"the same values, seeds and budget for every row{but}; {len(trials)} trials, "
        f"{sum(trial['seconds'] for trial in trials) / 3600:.1f} h",
        f"by commit {', '.join(commits)}",
    ]
    if any(sensitivity(tuning, row) is not None for row in rows):
        lines.append(
            "sensitivity: mean over rates of min(loss, loss before training) minus the best loss "
            "(Wortsman et al. 2023), or of the loss itself where older trials do not have the loss "
            "before training; a run that diverged counts as the loss before training; it is low, "
            "too, where no rate learns"
        )
    if edge:
        lines.append(
            f"at the edge of the values, so values beyond it may be better: {', '.join(edge)}"
        )
    return [f"- {each}\n" for each in lines]
