"""Scores that are near the untrained baseline, and the notes on them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from normlab.metrics.baseline import (
    CLEAR,
    NOT_CLEAR,
    ON_PLATEAU,
    PLATEAU,
    against_baseline,
    is_near_baseline,
    on_plateau,
)
from normlab.metrics.score_text import score_text
from normlab.records.pairs import Experiment
from normlab.reports.legend import About, Note

NEAR = "~"
"""The mark in terminals of scores that are near the untrained baseline."""


@dataclass(frozen=True)
class Untrained:
    """The untrained baselines of a table's scores, and which rows do not clearly beat them.

    By score, `baselines` has the lowest and the highest baseline of the runs, and `rows_near` the
    rows that are not clearly better. By row, `runs_near` has the number of its runs that are not
    clearly better, and the number of all its runs. `rows` is the number of rows.
    """

    baselines: Mapping[str, tuple[float, float]]
    rows_near: Mapping[str, Sequence[str]]
    runs_near: Mapping[str, tuple[int, int]]
    rows: int
    has_plateau: bool

    @classmethod
    def of(cls, rows: Mapping[str, Experiment], scores: Sequence[str]) -> "Untrained":
        finished = {row: [r for r in each.records if r.finished] for row, each in rows.items()}
        near = {
            score: [
                row
                for row, records in finished.items()
                if (compared := against_baseline(records, score)) is not None and compared.is_near
            ]
            for score in scores
        }
        counts = {
            row: (sum(map(is_near_baseline, each.records)), len(each.records))
            for row, each in rows.items()
        }
        every = [record for each in rows.values() for record in each.records]
        return cls(
            baselines=_baselines(rows, scores),
            rows_near={score: labels for score, labels in near.items() if labels},
            runs_near={row: count for row, count in counts.items() if count[0]},
            rows=len(rows),
            has_plateau=any(map(on_plateau, every)),
        )

    @property
    def notes(self) -> Iterator[Note]:
        if self.baselines or self.rows_near:
            values = [f"{score} {_range(ends, score)}" for score, ends in self.baselines.items()]
            text = f"untrained baseline: {', '.join(values) or 'not of these scores'}"
            yield Note(text, about=About.BASELINE)
        if self.rows_near:
            scores = "; ".join(
                f"{score} ({'; '.join(near) if len(near) < max(2, self.rows) else 'all rows'})"
                for score, near in self.rows_near.items()
            )
            yield Note(
                f"{NOT_CLEAR} ({CLEAR}), so a difference says nothing: {scores}",
                f"{NEAR} near the untrained baseline, so a difference says nothing",
                About.NOT_CLEAR,
            )
        elif self.runs_near:
            runs = [f"{row} ({n}/{of} runs)" for row, (n, of) in self.runs_near.items()]
            which = "; ".join(runs)
            brief = f"near the untrained baseline: {which}"
            yield Note(f"{NOT_CLEAR} ({CLEAR}): {which}", brief, About.NOT_CLEAR)
        if self.has_plateau:
            yield Note(f"{ON_PLATEAU}: {PLATEAU}")


def _baselines(
    rows: Mapping[str, Experiment], scores: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest untrained baseline of the runs that have a score."""
    records = [record for each in rows.values() for record in each.records]
    baselines: dict[str, tuple[float, float]] = {}
    for score in scores:
        name = score.rpartition("/")[2]
        floors = [r.floors[name] for r in records if name in r.floors and score in r.scores]
        if floors:
            baselines[score] = min(floors), max(floors)
    return baselines


def _range(ends: tuple[float, float], score: str) -> str:
    return " to ".join(dict.fromkeys(score_text(value, score) for value in ends))
