"""The page of any runs: that of a study, with runs in place of what a study planned."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from normlab.reports.digits import figure
from normlab.reports.evidence import NOT_ENDED, Evidence
from normlab.reports.html.page import duration
from normlab.reports.html.study import study_page
from normlab.reports.runs import DRAWN, Arranged
from normlab.reports.side_by_side import TextOf
from normlab.reports.table import build, data_name

_DASH = "\N{EN DASH}"


def runs_page(
    runs: Arranged,
    heading: str,
    *,
    problems: Sequence[str] = (),
    text_of: TextOf | None = None,
    live: bool = False,
) -> str:
    """Return the page of runs; `problems` are what could not be read, a line each.

    A `live` page asks the board that serves it for what has changed.
    """
    records = [each.record for each in runs.evidence if each.record is not None]
    pairs = [(each.planned, each.record) for each in runs.evidence]
    table = build(runs.study, runs.scale, pairs, absent=NOT_ENDED)
    data = data_name(runs.study, runs.scale, records)
    return study_page(
        runs.study,
        runs.scale,
        replace(table, title=f"Runs on {data}, scale={runs.scale}"),
        [_shown(each) for each in runs.evidence],
        template="runs.html",
        text_of=text_of,
        live=live,
        also=("live.js",) if live else (),
        heading=heading,
        problems=problems,
        drawn=DRAWN,
        undrawn=runs.undrawn,
    )


def _shown(evidence: Evidence) -> Evidence:
    """Return evidence with what the run does now as text."""
    now = evidence.now
    return evidence if now is None else replace(evidence, now={k: _said(k, now[k]) for k in now})


def _said(key: str, value: Any) -> str:
    """Write what `progress.json` says under a key, whatever it is: it may be a stranger's."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not -1e15 < value < 1e15:
        return value if isinstance(value, str) else _DASH
    if key == "left":
        return duration(max(0.0, float(value)))
    return figure(float(value), "valid/loss") if key == "loss" else f"{value:,.0f}"
