"""Builds the page of a study or of any runs: sections, facts and charts."""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from normlab.formats import duration
from normlab.metrics.baseline import is_amount_of_training
from normlab.metrics.score_text import score_text
from normlab.records.grouping import grouped
from normlab.records.record import RunRecord, parts
from normlab.records.store import record_file
from normlab.reports.arrangement.arrangement import Arrangement
from normlab.reports.figures.line_styles import row_styles
from normlab.reports.pages.chart_json import charts_of
from normlab.reports.pages.rendering import page
from normlab.reports.pages.sections import TableSection
from normlab.reports.runs import Run
from normlab.reports.tables.score_table import ScoreTable

_SHORT = 180.0  # shorter times are not shown in hours, because that would read "0.0 h"


def study_page(source: Arrangement, table: ScoreTable, home: Path) -> str:
    """Return the page of a study, made only from its evidence. `home` is the study's folder."""
    values = {"study": source.study, "scale": source.scale}
    return _page_of_runs("study.html", [TableSection(source, table)], home, **values)


def runs_page(
    sections: Sequence[TableSection],
    home: Path,
    *,
    heading: str,
    problems: Sequence[str] = (),
    reload: int = 0,
) -> str:
    """Return a page about any runs, with one section per table. `home` is the page's folder.

    `problems` are messages about unreadable files. The page reloads itself every `reload` seconds,
    unless `reload` is 0.
    """
    scale = ", ".join(
        dict.fromkeys(section.source.scale for section in sections if section.source.scale)
    )
    values = {"scale": scale, "heading": heading, "problems": problems, "reload": reload}
    return _page_of_runs("runs.html", sections, home, **values)


def _page_of_runs(
    template: str, sections: Sequence[TableSection], home: Path, **values: object
) -> str:
    """Render a page of sections. Its filters treat rows or points with the same name as one."""
    runs = [run for section in sections for run in section.runs]
    records = [record for section in sections for record in section.records]
    rows = dict.fromkeys(name for section in sections for name in section.row_names)
    points = {at: name for section in sections for at, name in section.points.items()}
    styles = row_styles(runs, rows)
    return page(
        template,
        charts_of([panel for section in sections for panel in section.panels], styles, points),
        sections=sections,
        settings=[asdict(style) for style in styles.values()],
        points=points,
        overview=_overview(runs, records),
        recorded={
            "configuration": facts(run.settings for run in runs),
            "environment": facts({"": r.environment} for r in records),
            "code": facts({"": {"numerics": r.numerics, **r.own_norms}} for r in records),
            "data": facts({"": record.data} for record in records),
        },
        link_of=lambda run: Path(os.path.relpath(record_file(run.folder), home)).as_posix(),
        score_of=_score,
        **values,
    )


def _score(record: RunRecord, column: str) -> str:
    if (score := record.metric(column)) is None:
        return "\N{EN DASH}"
    unreached = math.isinf(score.value) and is_amount_of_training(column)
    return "not reached" if unreached else score_text(score.value, column)


def _overview(runs: Sequence[Run], records: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Return the number of runs by outcome, their seeds and their training time."""
    outcomes = [run.outcome for run in runs]
    seconds = math.fsum(record.budget.wall_seconds for record in records)
    time = f"{seconds / 3600:.1f} h" if seconds >= _SHORT else duration(seconds)
    return [
        ("runs", [f"{outcomes.count(each)} {each}" for each in _counted(outcomes)]),
        ("seeds", [*map(str, sorted({run.key.seed for run in runs}))]),
        *([("training time, all runs", [time])] if records else []),
    ]


def facts(nodes: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the dotted keys of nested mappings, each with its distinct values as text."""
    pairs = (pair for node in nodes for pair in parts(node).items())
    texts = ((key, json.loads(text) if text[0] == '"' else text) for key, text in pairs)
    return [(key, _counted(values)) for key, values in sorted(grouped(texts).items())]


def _counted(values: Iterable[object]) -> list[str]:
    """Return the distinct values as text, most frequent first."""
    counts = Counter(str(value) for value in values if value is not None)
    return sorted(counts, key=lambda value: (-counts[value], value))
