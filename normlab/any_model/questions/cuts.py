"""Searches for cuts at which later tokens change the output at earlier positions.

At cut t, the tokens after the first t get other values, and the output at the first t positions is
compared. Many cuts are rows of one batch, each row with its own cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from normlab.any_model.batches.overlap import Padded, RowInBatch, SharedPositions, comparable
from normlab.any_model.questions.examination import Examination, PassPair
from normlab.errors import UserError
from normlab.findings.relative_change import relative_change

BUDGET = 1e11
"""The largest number of parameters times tokens to run. It limits the number of cuts."""
SINGLE = 12
"""The largest number of cuts if each of them is a pass of its own."""
_ENTRIES = 2**24  # the largest number of entries of a pass's outputs
_SPREAD = 0.6180339887  # multiples of it, modulo 1, spread evenly but not periodically


class CutSearch(NamedTuple):
    """The cuts that were looked at, and the one with the largest change, if that is a leak."""

    cuts: Sequence[int]
    leaking: int | None = None


class _Largest(NamedTuple):
    """The cut with the largest change, and whether rounding is too small to explain it."""

    cut: int
    leaks: bool


@dataclass(frozen=True)
class Cuts:
    """The cuts of the longest row, whose output `main` has `positions` positions.

    `pooled` are the outputs without positions that have one feature per position.
    """

    examination: Examination
    main: str
    positions: int
    pooled: frozenset[str]

    @property
    def steps(self) -> int:
        """The number of positions of the inputs, which is one more than that of the cuts."""
        return self.examination.example.steps

    def pair(self, t: int) -> PassPair:
        """Return the comparison of the longest row with itself with other tokens from t on."""
        example = self.examination.example
        return PassPair(
            example.with_later_tokens(t), self.examination.longest_row, self._shared_positions(t)
        )

    def _shared_positions(self, t: int) -> SharedPositions:
        return SharedPositions(self.positions, shared=t, main_name=self.main, pooled=self.pooled)

    def search(self) -> CutSearch:
        """Look at all cuts in float64, or at as many as the budget allows.

        If rows of a batch influence each other, or the model refuses batches, each cut is a pass.
        """
        for rows in dict.fromkeys((self._rows_of_a_pass(), 1)):
            count = self._affordable() if rows > 1 else min(self._affordable(), SINGLE)
            cuts = chosen_cuts(self.steps, count)
            try:
                largest = self._largest(cuts, rows)
                if largest.leaks and rows > 1:  # is it this row's own tokens?
                    largest = self._largest([largest.cut], 1)
                    if not largest.leaks:
                        continue
            except UserError:
                continue
            return CutSearch(cuts, largest.cut if largest.leaks else None)
        return CutSearch([usual_cuts(self.steps)[0]])

    def _affordable(self) -> int:
        """Return the number of cuts that the budget allows."""
        model, example = self.examination.model, self.examination.example
        weights = sum(weight.numel() for weight in model.parameters())
        tokens = example.length + bool(example.decoder_axes) * example.steps
        return int(BUDGET / max(weights * tokens, 1))

    def _rows_of_a_pass(self) -> int:
        """Return the number of rows whose outputs fit into a pass."""
        outputs = self.examination.outputs(self.examination.longest_row)
        return max(1, _ENTRIES // max(1, sum(y.numel() for y in outputs.values())))

    def _largest(self, cuts: Sequence[int], rows: int) -> _Largest:
        """Run the cuts, `rows` of them in each pass. Raises UserError if that fails."""
        return self.examination.in_widest_dtype(partial(self._measured, cuts, rows))

    def _measured(self, cuts: Sequence[int], rows: int, in_float64: bool) -> _Largest:
        changes: dict[int, float] = {}
        for start in range(0, len(cuts), rows):
            changes |= self._of_a_pass(cuts[start : start + rows], in_float64)
        largest = max(changes, key=lambda t: changes[t])
        limit = self.examination.largest_rounding(in_float64=in_float64)
        return _Largest(largest, changes[largest] > limit)

    def _of_a_pass(self, cuts: Sequence[int], in_float64: bool) -> dict[int, float]:
        """Return the largest change of an output at each cut, with one row per cut."""
        first, *others = map(self.examination.example.with_later_tokens, cuts)
        batch = first.with_rows_of(others)
        ys, bases = (
            self.examination.outputs(x, in_float64=in_float64)
            for x in (batch, self.examination.longest_row)
        )
        changes: dict[int, float] = {}
        for index, t in enumerate(cuts):
            pairs = RowInBatch(index, len(cuts), Padded()).pairs(ys, bases)
            of_row = {
                name: pair.nearest()[0]
                for name, pair in pairs.items()
                if name == self.main or pair.overlap.fits(pair.y, pair.base)
            }
            shared = comparable(of_row, bases, self._shared_positions(t)).values()
            changes[t] = max(relative_change(*pair.nearest()) for pair in shared)
        return changes


def usual_cuts(steps: int) -> list[int]:
    """Return the cuts that are always looked at.

    Blocks that share a summary often end in the middle, and a prefix that sees itself ends early.
    """
    cuts = (steps // 2, max(1, 2 * steps // 3 - 1), steps - 1, max(1, steps // 4), 1)
    return [*dict.fromkeys(cuts)]


def chosen_cuts(steps: int, count: int) -> Sequence[int]:
    """Return the usual cuts and others, spread over the row, or all if `count` allows it."""
    if count >= steps - 1:
        return range(1, steps)
    cuts, number = dict.fromkeys(usual_cuts(steps)), 0
    while len(cuts) < count:
        number += 1
        cuts[1 + int(number * _SPREAD % 1 * (steps - 1))] = None
    return sorted(cuts)
