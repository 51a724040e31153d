"""Decides what a comparison of a claim asks of the records, and how they answer.

Four forms, each with the runs that it is about in `where`:

    {score: test/bleu, better: {norm: ln}, worse: {norm: bn}, margin: 0}
    {measure: stability/tid/mean, more: {norm: bn}, less: {norm: ln}, margin: 0}
    {measure: test/bleu, in: {norm: none}, below: 5}    or `above`
    {outcome: diverged, in: {norm: none}}

The first two take the difference between two settings over the seeds that both have, in the
direction of the score or as named. It supports the claim where its 95 % t interval lies above the
margin and contradicts where it lies below, so a negative margin asks whether something is hardly
worse. The third does so with one setting and a bound. The last wants at least three seeds, of which
all or none ended so. `minus` names a second figure of the same run to be subtracted, `besides` keys
of the config that may differ as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normlab.claims.evidence import FEWEST_SEEDS, Evidence, Standing, figures, judge
from normlab.claims.runs import Runs, labels, mismatch, pairs
from normlab.metrics.spread import Interval
from normlab.records.aggregate import Cell
from normlab.records.record import RunRecord

SPEED = "tokens_per_second"
OUTCOMES = ("diverged", "finished")
_BESIDE_THE_QUESTION = ("task", "scale", "placement")
_OTHER_WAY: dict[Standing, Standing] = {"supports": "contradicts", "contradicts": "supports"}
Where = Mapping[str, object]


@dataclass(frozen=True)
class Paired:
    """Two sides of which the first is to be better by a score, or to have more of a measure."""

    name: str
    first: Where
    second: Where
    where: Where
    margin: float
    besides: tuple[str, ...]
    minus: str | None
    by_score: bool

    @property
    def question(self) -> str:
        """Say what is claimed."""
        sides = _keys(self.first), _keys(self.second)
        verb = "better with {} than with {}" if self.by_score else "more with {} than with {}"
        return f"{_named(self.name, self.minus)} {verb.format(*sides)}{_margin(self.margin)}"

    def evidence(self, runs: Runs) -> list[Evidence]:
        """Compare setting by setting."""
        (first, odd), (second, also_odd) = (
            runs.settings({**self.where, **side}) for side in (self.first, self.second)
        )
        refused = [_piece(self, "not comparable", reason) for reason in [*odd, *also_odd]]
        varied = [
            key
            for key in {**self.first, **self.second}
            if key not in self.first
            or key not in self.second
            or self.first[key] != self.second[key]
        ]
        first, second = (_recording(cells, self.name, self.minus) for cells in (first, second))
        found = pairs(first, second, [*varied, *self.besides])
        if not found:
            lacking = [_keys(s) for s, c in ((self.first, first), (self.second, second)) if not c]
            why = f"no runs with {' or '.join(lacking)}" if lacking else "no two otherwise equal"
            return [*refused, _piece(self, "no records", why)]
        apart = zip(*(labels([pair[side] for pair in found]) for side in (0, 1)), strict=True)
        return refused + [
            self._compare(runs, a, b, " ".join(dict.fromkeys(" ".join(said).split())))
            for (a, b), said in zip(found, apart, strict=True)
        ]

    def _compare(self, runs: Runs, a: Cell, b: Cell, apart: str) -> Evidence:
        def piece(standing: Standing, finding: str, **more: Any) -> Evidence:
            members = [*a.records, *b.records]
            return _piece(self, standing, finding, cell=a, apart=apart, of=(runs, members), **more)

        if reason := mismatch(a, b):
            return piece("not comparable", reason)
        scored = [r.scores[self.name] for c in (a, b) for r in c.records if self.name in r.scores]
        if len({(score.signature, score.higher_is_better) for score in scored}) > 1:
            return piece("not comparable", f"{self.name} was computed in several ways")
        ones, others = (_values(cell, self.name, self.minus) for cell in (a, b))
        seeds = sorted(ones.keys() & others.keys())
        sign = -1 if self.by_score and scored and not scored[0].higher_is_better else 1
        standing, interval = judge([sign * (ones[s] - others[s]) for s in seeds], self.margin)
        means = [sum(values[s] for s in seeds) / max(len(seeds), 1) for values in (ones, others)]
        shown = " against ".join(figures(*means)) if seeds else "no common seed"
        finding = f"{_measured(interval)} ({shown})" if interval else shown
        ends = [f"{_keys(s)} {c.outcome}" for s, c in ((self.first, a), (self.second, b))]
        unfinished = [end for end in ends if " finished" not in end]
        return piece(
            standing,
            "; ".join([finding, *unfinished]),
            n=len(seeds),
            numbers={"first": means[0], "second": means[1], **_numbers(interval)} if seeds else {},
        )


@dataclass(frozen=True)
class Level:
    """One setting, of which a figure is to lie above or below a bound."""

    name: str
    inside: Where
    where: Where
    bound: float
    above: bool
    minus: str | None

    @property
    def question(self) -> str:
        """Say what is claimed."""
        way = "above" if self.above else "below"
        return f"{_named(self.name, self.minus)} {way} {self.bound:g} with {_keys(self.inside)}"

    def evidence(self, runs: Runs) -> list[Evidence]:
        """Look at each setting."""
        cells, refused = runs.settings({**self.where, **self.inside})
        return _of_each(self, runs, _recording(cells, self.name, self.minus), refused, self._look)

    def _look(self, cell: Cell) -> tuple[Standing, str, int, dict[str, float]]:
        values = list(_values(cell, self.name, self.minus).values())
        standing, interval = judge(values, self.bound)
        if not self.above:
            standing = _OTHER_WAY.get(standing, standing)
        shown = _measured(interval) if interval else " ".join(figures(*values))
        return standing, shown, len(values), _numbers(interval)


@dataclass(frozen=True)
class Ending:
    """One setting, of which every run is to end in the same way."""

    outcome: str
    inside: Where
    where: Where

    @property
    def question(self) -> str:
        """Say what is claimed."""
        return f"every run {self.outcome} with {_keys(self.inside)}"

    def evidence(self, runs: Runs) -> list[Evidence]:
        """Look at each setting."""
        return _of_each(self, runs, *runs.settings({**self.where, **self.inside}), self._look)

    def _look(self, cell: Cell) -> tuple[Standing, str, int, dict[str, float]]:
        # A run that crashed or was stopped did not end by what its norm did.
        statuses: list[str] = [record.outcome.status for record in cell.records]
        ends = [status for status in statuses if status in OUTCOMES]
        so = ends.count(self.outcome)
        standing: Standing = "too few seeds"
        if len(ends) >= FEWEST_SEEDS:
            decided: dict[int, Standing] = {len(ends): "supports", 0: "contradicts"}
            standing = decided.get(so, "undecided")
        return standing, f"{self.outcome} {so}/{len(ends)}", len(ends), {self.outcome: float(so)}


def _of_each(
    comparison: Level | Ending,
    runs: Runs,
    cells: Sequence[Cell],
    refused: Sequence[str],
    look: Callable[[Cell], tuple[Standing, str, int, dict[str, float]]],
) -> list[Evidence]:
    pieces = [_piece(comparison, "not comparable", reason) for reason in refused]
    if not cells:
        why = f"no runs with {_keys(comparison.inside)}"
        return [*pieces, _piece(comparison, "no records", why)]
    for cell, apart in zip(cells, labels(cells), strict=True):
        standing, finding, n, numbers = look(cell)
        of = runs, cell.records
        more: dict[str, Any] = {"cell": cell, "apart": apart, "of": of, "n": n, "numbers": numbers}
        pieces.append(_piece(comparison, standing, finding, **more))
    return pieces


def _piece(
    comparison: Paired | Level | Ending,
    standing: Standing,
    finding: str,
    *,
    cell: Cell | None = None,
    apart: str = "",
    of: tuple[Runs, Sequence[RunRecord]] | None = None,
    **more: Any,
) -> Evidence:
    where = comparison.where
    narrower = {key: value for key, value in where.items() if key not in _BESIDE_THE_QUESTION}
    wanted = {key: value for key, value in where.items() if key in _BESIDE_THE_QUESTION}
    found = wanted if cell is None else {k: cell.choice(k) for k in _BESIDE_THE_QUESTION}
    task, scale, placement = (found.get(key) for key in _BESIDE_THE_QUESTION)
    return Evidence(
        kind="study",
        question=comparison.question + (f", where {_keys(narrower)}" if narrower else ""),
        finding=finding,
        standing=standing,
        task=None if task is None else str(task),
        scale=None if scale is None else str(scale),
        setting=" ".join(str(part) for part in (placement, apart) if part),
        records=tuple(dict.fromkeys(of[0].folder(r) for r in of[1])) if of else (),
        **more,
    )


def _recording(cells: Sequence[Cell], name: str, minus: str | None) -> list[Cell]:
    """Leave out settings whose finished runs lack the figure, as another task's do.

    Where none finished nothing can be told, and the setting stays: to have no score is a result.
    """
    return [
        cell
        for cell in cells
        if _values(cell, name, minus) or not any(record.finished for record in cell.records)
    ]


def _values(cell: Cell, name: str, minus: str | None) -> dict[int, float]:
    found = {record.seed: _value(record, name) for record in cell.records}
    if minus is not None:
        less = {record.seed: _value(record, minus) for record in cell.records}
        found = {
            seed: None if value is None or (other := less[seed]) is None else value - other
            for seed, value in found.items()
        }
    return {seed: value for seed, value in found.items() if value is not None}


def _value(record: RunRecord, name: str) -> float | None:
    """Return a score of a finished run, a figure of a probe, or the speed; None without it."""
    if name == SPEED:
        return record.budget.tokens_per_second
    if name in record.scores:
        return record.scores[name].value if record.finished else None
    return record.stability.get(name)


def _measured(interval: Interval) -> str:
    mean, low, high = figures(interval.mean, interval.low, interval.high)
    return f"{mean} [{low}, {high}]"


def _numbers(interval: Interval | None) -> dict[str, float]:
    if interval is None:
        return {}
    return {"mean": interval.mean, "sd": interval.sd, "low": interval.low, "high": interval.high}


def _named(name: str, minus: str | None) -> str:
    return name if minus is None else f"{name} minus {minus}"


def _margin(margin: float) -> str:
    if margin < 0:
        return f", or less by at most {-margin:g}"
    return f", by more than {margin:g}" if margin else ""


def _keys(where: Where) -> str:
    return " ".join(f"{key}={value}" for key, value in where.items())
