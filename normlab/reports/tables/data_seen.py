"""Whether the rows of a table were trained on equal amounts of data, and the note that says so."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from normlab.formats import rounded_count
from normlab.records.record import RunRecord
from normlab.reports.legend import Note
from normlab.reports.tables.score_table import ScoreRow

_EQUAL = 1.1
"""Amounts count as equal up to this ratio."""


class RowAmount(NamedTuple):
    """The mean amount of data that the finished runs of a row were trained on."""

    row: str
    amount: float


@dataclass(frozen=True)
class EqualData:
    """All rows saw equal amounts of data, in different numbers of updates."""

    unit: str
    amount: float

    @property
    def note(self) -> Note:
        return Note(f"equal {self.unit}: about {rounded_count(self.amount)} in each run's training")


@dataclass(frozen=True)
class EqualBudget:
    """All runs ended with the batch in which they used up the same budget of data."""

    unit: str
    budget: int
    most: RowAmount

    @property
    def note(self) -> Note:
        return Note(
            f"equal {self.unit}: {self.budget:,} in each run's training, and the rest of its last "
            f"batch, up to {rounded_count(self.most.amount)} with {self.most.row}"
        )


@dataclass(frozen=True)
class UnequalData:
    """One row saw clearly more data than another."""

    unit: str
    least: RowAmount
    most: RowAmount
    equal_updates: bool

    @property
    def times(self) -> float:
        """The most data that a row saw, divided by the least."""
        return self.most.amount / self.least.amount if self.least.amount else math.inf

    @property
    def note(self) -> Note:
        unit, least, most = self.unit, self.least, self.most
        equal = "in equal updates, " if self.equal_updates else ""
        return Note(
            f"UNEQUAL {unit}: {equal}{least.row} was trained on {rounded_count(least.amount)} and "
            f"{most.row} on {rounded_count(most.amount)}, {self.times:.1f} times as many; "
            "steps=null budget.tokens=N (or epochs=N) trains all on equal amounts",
            f"UNEQUAL {unit}, up to {self.times:.1f} times as many",
        )


def data_seen(rows: Sequence[ScoreRow]) -> EqualData | EqualBudget | UnequalData | None:
    """Return how the rows' amounts of data compare.

    Returns None if all rows saw equal amounts in equally many updates, if no run finished, or if
    runs measure their data in different units, such as tokens and images.
    """
    finished = {
        row.label: runs for row in rows if (runs := [run for run in row.records if run.finished])
    }
    every = [run for runs in finished.values() for run in runs]
    units = {run.unit for run in every}
    if len(units) != 1:
        return None
    (unit,) = units
    amounts = {row: fmean(run.budget.tokens for run in runs) for row, runs in finished.items()}
    updates = [fmean(run.budget.steps for run in runs) for runs in finished.values()]
    least, most = (RowAmount(*_at(pick(amounts.values()), amounts)) for pick in (min, max))
    if most.amount <= _EQUAL * least.amount:
        same_updates = max(updates) <= _EQUAL * min(updates)
        return None if same_updates else EqualData(unit, fmean(amounts.values()))
    budgets = {_budget_spent(run) for run in every}
    if len(budgets) == 1 and (budget := budgets.pop()) is not None:
        return EqualBudget(unit, budget, most)
    return UnequalData(unit, least, most, equal_updates=len({*updates}) == 1)


def _at(amount: float, amounts: Mapping[str, float]) -> tuple[str, float]:
    """Return the first row with this amount, and the amount."""
    return next((row, each) for row, each in amounts.items() if each == amount)


def _budget_spent(record: RunRecord) -> int | None:
    """Return the budget of tokens (or samples) that ended a run, or None if something else did."""
    budget = record.config.get("budget")
    if record.outcome.reason != "tokens" or not isinstance(budget, Mapping):
        return None
    tokens = budget.get("tokens")
    return tokens if isinstance(tokens, int) else None
