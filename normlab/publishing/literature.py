"""The page "What others measured, and what we get", with a row per `LiteratureNumber`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from normlab.config.registry import option_names
from normlab.metrics.significance import Interval, t_interval
from normlab.records.grouping import grouped
from normlab.records.labels import in_markdown
from normlab.records.packed import RECORDS
from normlab.records.pairs import PLANNED, Pairing
from normlab.records.record import RunRecord
from normlab.reports.runs import Run
from normlab.studies.load import load_study
from normlab.studies.study import LiteratureNumber, Study

LITERATURE = "literature.md"
_HEAD = """\
# What others measured, and what we get

Each row is a number that others published, with its source; the number that normlab measures in the
same setting, with its 95 % t interval over seeds; and whether the interval contains the published
number. If our model is smaller than theirs, only the sign of a difference is compared. The file of
each study, `configs/study/STUDY.yaml`, has the settings, and what differs from theirs.

| what, and where | theirs | ours | verdict |
| --- | --- | --- | --- |
"""


def literature_page(root: Path, read: Callable[[Path], Sequence[Run]]) -> str:
    """Return the page in Markdown, from the studies' files and the runs that `read` finds."""
    studies = [load_study(name) for name in option_names("study")]
    rows = [
        _row(study, each, _finished(root / study.name / each.scale, read))
        for study in studies
        for each in study.literature
    ]
    return _HEAD + "".join(rows)


RecordsByPoint = Mapping[tuple[str, str], Sequence[RunRecord]]
"""The finished runs of a published study, by row and point."""


def _finished(folder: Path, read: Callable[[Path], Sequence[Run]]) -> RecordsByPoint:
    """Return the finished runs of a published study, or {} if there are none."""
    runs = read(folder) if (folder / RECORDS).is_file() else ()
    finished = [(run.key, run.record) for run in runs if run.record and run.record.finished]
    return grouped(((key.row, key.point), record) for key, record in finished)


def _ours_by_seed(each: LiteratureNumber, records: RecordsByPoint) -> dict[int, float]:
    """Return our value by seed: a score, or its difference from another row."""
    runs = records.get((each.row, each.at), ())
    if each.minus:
        others = records.get((each.minus, each.at), ())
        return Pairing.of(runs, others, PLANNED).differences(each.column)
    scores = ((run.seed, run.metric(each.column)) for run in runs)
    return {seed: score.value for seed, score in sorted(scores) if score is not None}


def _row(study: Study, each: LiteratureNumber, records: RecordsByPoint) -> str:
    ours = [*_ours_by_seed(each, records).values()]
    theirs = " to ".join(f"{number:g}" for number in each.number)
    where = f"{each.what} ({each.source}; `{study.name}`)"
    interval = t_interval(ours) if len(ours) > 1 else None
    cells = (
        in_markdown(where),
        theirs,
        _ours(ours, interval),
        _verdict(study, each, ours, interval),
    )
    return f"| {' | '.join(cells)} |\n"


def _ours(ours: Sequence[float], interval: Interval | None) -> str:
    if interval is None:
        return f"{fmean(ours):.3f}, one seed" if ours else "-"
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}], {interval.n} seeds"


def _verdict(
    study: Study, each: LiteratureNumber, ours: Sequence[float], interval: Interval | None
) -> str:
    """Return the verdict on a number, or why there is none."""
    why = f"; {in_markdown(each.why)}" if each.why else ""
    if interval is None:
        missing = "no interval: only one seed" if ours else "not run yet"
        return f"{missing} (`normlab study run {study.name} scale={each.scale}`){why}"
    low, high = min(each.number), max(each.number)
    if each.by == "value":
        holds = interval.low <= high and interval.high >= low
        return f"the interval {'contains' if holds else 'does not contain'} it{why}"
    if interval.low <= 0 <= interval.high:
        return f"the sign is undecided{why}"
    return f"the {'same' if (interval.mean > 0) == (low + high > 0) else 'opposite'} sign{why}"
