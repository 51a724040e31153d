"""The page "What others measured, and what we get": a row per `PublishedNumber`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from normlab.config.registry import option_names
from normlab.metrics.spread import Interval, t_interval
from normlab.records.labels import in_markdown
from normlab.records.packed import RECORDS
from normlab.reports.gather import Run
from normlab.studies.load import load_study
from normlab.studies.study import PublishedNumber, Study

OTHERS = "published.md"
PREFIX = "published_"
"""How the names of studies begin that repeat a table of others."""
_HEAD = """\
# What others measured, and what we get

Each row is a number that others published, with its source; the number that normlab measures in the
same setting, with its 95 % t interval over seeds; and whether the interval holds the published
number. Where our model is smaller than theirs, only the sign of a difference is compared. The file
of each study, `configs/study/published_*.yaml`, has the settings, and what differs from theirs.

| what, and where | theirs | ours | verdict |
| --- | --- | --- | --- |
"""


def others_page(root: Path, read: Callable[[Path], Sequence[Run]]) -> str:
    """Return the page in Markdown, from the studies' files and the runs that `read` finds."""
    studies = [load_study(name) for name in option_names("study") if name.startswith(PREFIX)]
    rows = [
        _row(study, each, _values(root / study.name / each.scale, read))
        for study in studies
        for each in study.published
    ]
    return _HEAD + "".join(rows)


Values = Mapping[tuple[str, str, str], Mapping[int, float]]
"""Scores by seed, by row, point and name."""


def _values(folder: Path, read: Callable[[Path], Sequence[Run]]) -> Values:
    """Return the scores of a published study's finished runs; empty if there are none."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for run in read(folder) if (folder / RECORDS).is_file() else ():
        if run.record is None or not run.record.finished:
            continue
        for name, score in run.record.scores.items():
            found.setdefault((run.key.row, run.key.point, name), {})[run.key.seed] = score.value
    return found


def _row(study: Study, each: PublishedNumber, values: Values) -> str:
    own = values.get((each.row, each.at, each.column), {})
    if each.minus:
        other = values.get((each.minus, each.at, each.column), {})
        own = {seed: own[seed] - other[seed] for seed in own.keys() & other.keys()}
    ours = [own[seed] for seed in sorted(own)]
    theirs = " to ".join(f"{number:g}" for number in each.number)
    where = f"{each.what} ({each.source}; `{study.name}`)"
    interval = t_interval(ours) if len(ours) > 1 else None
    cells = (in_markdown(where), theirs, _ours(ours, interval), _said(study, each, ours, interval))
    return f"| {' | '.join(cells)} |\n"


def _ours(ours: Sequence[float], interval: Interval | None) -> str:
    if interval is None:
        return f"{fmean(ours):.3f}, one seed" if ours else "-"
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}], {interval.n} seeds"


def _said(
    study: Study, each: PublishedNumber, ours: Sequence[float], interval: Interval | None
) -> str:
    """Return the verdict on a number, or why there is none."""
    why = f"; {in_markdown(each.why)}" if each.why else ""
    if interval is None:
        missing = "one seed has no interval" if ours else "not run yet"
        return f"{missing} (`normlab study run {study.name} scale={each.scale}`){why}"
    low, high = min(each.number), max(each.number)
    if each.by == "value":
        holds = interval.low <= high and interval.high >= low
        return f"the interval {'holds' if holds else 'does not hold'} it{why}"
    if interval.low <= 0 <= interval.high:
        return f"the sign is undecided{why}"
    return f"the {'same' if (interval.mean > 0) == (low + high > 0) else 'opposite'} sign{why}"
