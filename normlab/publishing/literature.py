"""The page "What others measured, and what we get", with a row per `LiteratureNumber`.

`_verdict` compares our value with the published one; the words are in `templates/literature.md`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from normlab.config.registry import option_names
from normlab.metrics.baseline import at_baseline
from normlab.metrics.score_text import score_text
from normlab.metrics.significance import Interval, t_interval
from normlab.records.grouping import grouped
from normlab.records.labels import in_markdown
from normlab.records.packed import RECORDS
from normlab.records.pairs import PLANNED, Pairing
from normlab.records.record import RunRecord
from normlab.reports.runs import Run
from normlab.reports.tables.comparison import count_diverged
from normlab.studies.load import load_study
from normlab.studies.study import LiteratureNumber, Study
from normlab.templates import environment

LITERATURE = "literature.md"
RecordsByPoint = Mapping[tuple[str, str], Sequence[RunRecord]]
"""The ended runs of a published study, keyed by row and point."""
Verdict = Literal[
    "not run",
    "one seed",
    "diverged",
    "not learned",
    "contained",
    "not contained",
    "same sign",
    "opposite sign",
    "sign undecided",
    "no difference",
    "a difference",
]
"""Whether our interval contains the published number; with `by: sign`, whether it agrees with its
sign; with `by: no difference`, whether it contains 0. If a run diverged, or the runs of a side are
not clearly better than their untrained baseline, they decide nothing."""
UNDECIDED = ("one seed", "diverged", "not learned", "sign undecided")


class LiteratureRow(NamedTuple):
    """A row of the page: the published number `theirs`, and our values, one per seed.

    `data` names the data of our study. `interval` is the t interval of our values, or None if there
    are fewer than two.
    """

    study: str
    data: str
    theirs: LiteratureNumber
    ours: Sequence[float]
    interval: Interval | None
    verdict: Verdict

    @property
    def times_theirs(self) -> float | None:
        """Our mean in multiples of the published number, or None if the units differ."""
        if self.interval is None or self.theirs.unit:
            return None
        return self.interval.mean / fmean(self.theirs.number)


def literature_page(root: Path, read: Callable[[Path], Sequence[Run]]) -> str:
    """Return the page in Markdown.

    The published numbers are in the files of the studies. `read` returns the runs in a folder.
    """
    rows = [
        _row(study, theirs, _ended(root / study.name / theirs.scale, read))
        for study in map(load_study, option_names("study"))
        for theirs in study.literature
    ]
    jinja = environment("normlab.publishing")
    jinja.filters |= {
        "in_markdown": in_markdown,
        "number": "{:g}".format,
        "score": score_text,
    }
    sections = {
        by: [row for row in rows if row.theirs.by == by]
        for by in ("value", "sign", "no difference")
    }
    return jinja.get_template(LITERATURE).render(sections=sections, undecided=UNDECIDED)


def literature_folders(root: Path) -> set[Path]:
    """Return the folders of the published runs that the page may show."""
    studies = map(load_study, option_names("study"))
    return {root / study.name / each.scale for study in studies for each in study.literature}


def _ended(folder: Path, read: Callable[[Path], Sequence[Run]]) -> RecordsByPoint:
    """Return the ended runs of a published study, or {} if there are none."""
    runs = read(folder) if (folder / RECORDS).is_file() else ()
    return grouped((run.key.row_and_point, run.record) for run in runs if run.record)


def _row(study: Study, theirs: LiteratureNumber, records: RecordsByPoint) -> LiteratureRow:
    sides = _sides(theirs, records)
    ours = _values(theirs.column, sides)
    interval = t_interval(ours) if len(ours) > 1 else None
    data = study.scale(theirs.scale).data_name_of(())
    if any(count_diverged(side) for side in sides):
        verdict: Verdict = "diverged"
    elif any(at_baseline(side, theirs.column) for side in sides if side):
        verdict = "not learned"
    elif interval is None:
        verdict = "one seed" if ours else "not run"
    else:
        verdict = _verdict(theirs, interval)
    return LiteratureRow(study.name, data, theirs, ours, interval, verdict)


def _sides(theirs: LiteratureNumber, records: RecordsByPoint) -> list[Sequence[RunRecord]]:
    """Return the runs of a row and, for a difference, those of the row or point it is from."""
    sides = [records.get((theirs.row, theirs.at), ())]
    if theirs.minus or theirs.minus_at:
        other = (theirs.minus or theirs.row, theirs.minus_at or theirs.at)
        sides.append(records.get(other, ()))
    return sides


def _values(score: str, sides: Sequence[Sequence[RunRecord]]) -> list[float]:
    """Return our value for each seed: a score, or the difference between two sides."""
    if any(count_diverged(side) for side in sides):  # the others are not a fair sample
        return []
    first, *others = sides
    if others:
        return [*Pairing.of(first, others[0], PLANNED).differences(score).values()]
    in_order = sorted(first, key=lambda run: run.seed)
    scores = (run.metric(score) for run in in_order)
    return [each.value for each in scores if each is not None]


def _verdict(theirs: LiteratureNumber, ours: Interval) -> Verdict:
    low, high = min(theirs.number), max(theirs.number)
    if theirs.by == "value":
        overlap = ours.low <= high and ours.high >= low
        return "contained" if overlap else "not contained"
    contains_0 = ours.low <= 0 <= ours.high
    if theirs.by == "no difference":
        return "no difference" if contains_0 else "a difference"
    if contains_0:
        return "sign undecided"
    return "same sign" if (ours.mean > 0) == (low + high > 0) else "opposite sign"
