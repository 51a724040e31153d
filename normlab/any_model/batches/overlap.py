"""Finds the parts of two passes' tensors that correspond, for each way in which inputs differ.

The axes of a tensor inside a model have no names, so its row axis and its position axis are
recognized by their sizes in the two passes. The input of the base pass is one row. There is a class
for each kind of variant:

    Padded           the same row, padded by some positions or by none
    RowInBatch       a batch that contains the row
    SharedPositions  a row of the same length that differs at one end
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from normlab.any_model.batches.outputs import Outputs
from normlab.errors import UserError
from normlab.findings.relative_change import relative_change

PaddingSide = Literal["left", "right"]
Aligned = tuple[Tensor, Tensor]
"""The parts of a variant's tensor and of the base's that correspond; both have the same shape."""


class Overlap(ABC):
    """Finds the part of a variant's tensor that corresponds to a tensor of the base."""

    @abstractmethod
    def ways(self, y: Tensor, base: Tensor) -> Iterator[Aligned]:
        """Yield both tensors, cut to the same shape, for each way in which they can correspond.

        Raises UserError if they cannot correspond.
        """

    def pairs(self, ys: Outputs, bases: Outputs) -> dict[str, "OutputPair"]:
        """Return the outputs that both passes have, keyed by their names in the base."""
        return {name: OutputPair(ys[name], bases[name], self) for name in bases if name in ys}

    def concerns(self, y: Tensor, base: Tensor) -> bool:
        """Return whether an output has the axis in which the inputs of the two passes differ."""
        return True

    def main(self, pairs: Mapping[str, "OutputPair"]) -> str:
        """Return the name of the main output: the first that `concerns` accepts, or the first."""
        concerned = (name for name, (y, base, how) in pairs.items() if how.concerns(y, base))
        return next(concerned, next(iter(pairs)))

    @abstractmethod
    def fits(self, y: Tensor, base: Tensor) -> bool:
        """Return whether each entry of the base can have a counterpart in the variant.

        No axis of the variant may be longer by more than the padding.
        """

    def first(self, y: Tensor, base: Tensor) -> Aligned:
        """Return views of both tensors, aligned in the most common way.

        Raises UserError if the tensors cannot be aligned.
        """
        return next(self.ways(y, base))

    def nearest(self, y: Tensor, base: Tensor) -> Aligned:
        """Return both tensors, aligned in the way that makes them most similar.

        Raises UserError if they cannot correspond.
        """
        ways = [*self.ways(y, base)]
        return ways[0] if len(ways) == 1 else min(ways, key=lambda pair: _distance(*pair))


class OutputPair(NamedTuple):
    """An output of the variant, the same output of the base, and how they overlap."""

    y: Tensor
    base: Tensor
    overlap: Overlap

    def nearest(self) -> Aligned:
        """Return both tensors, aligned in the way that makes them most similar."""
        return self.overlap.nearest(self.y, self.base)


@dataclass(frozen=True)
class Padded(Overlap):
    """The base has `length` positions, and the variant has `padding` more positions on `side`.

    Along each axis that is longer in the variant, its first entries correspond to the base, or its
    last ones if the padding is on the left. If the axis has more than `length` entries in the base,
    the model may have added some at the other end, such as a class token. This is the second way.
    """

    side: PaddingSide = "right"
    length: int = 0
    padding: int = 0

    def ways(self, y: Tensor, base: Tensor) -> Iterator[Aligned]:
        if y.ndim != base.ndim or any(a < b for a, b in zip(y.shape, base.shape, strict=True)):
            raise UserError(f"the output is {[*y.shape]}, but {[*base.shape]} for one row alone")
        longer = [axis for axis, few in enumerate(base.shape) if y.shape[axis] > few]
        one_end = both_ends = y
        for axis in longer:
            one_end = self._from_one_end(one_end, axis, base.shape[axis])
            both_ends = self._from_both_ends(both_ends, axis, base.shape[axis])
        yield one_end, base
        if any(self._has_added(base.shape[axis]) for axis in longer):
            yield both_ends, base

    def fits(self, y: Tensor, base: Tensor) -> bool:
        if y.ndim != base.ndim or not base.numel():
            return False
        growth = [a - b for a, b in zip(y.shape, base.shape, strict=True)]
        return all(0 <= more <= self.padding for more in growth)

    def _from_one_end(self, y: Tensor, axis: int, few: int) -> Tensor:
        return y.narrow(axis, y.shape[axis] - few if self.side == "left" else 0, few)

    def _has_added(self, few: int) -> bool:
        """Return whether an axis of the base may have all positions and some added by the model."""
        return 0 < self.length < few

    def _from_both_ends(self, y: Tensor, axis: int, few: int) -> Tensor:
        """Return the positions from one end, and what the model added from the other end."""
        if not self._has_added(few):
            return self._from_one_end(y, axis, few)
        first = few - self.length if self.side == "left" else self.length
        last = few - first
        parts = [y.narrow(axis, 0, first), y.narrow(axis, y.shape[axis] - last, last)]
        return torch.cat(parts, axis)


@dataclass(frozen=True)
class RowInBatch(Overlap):
    """The variant is a batch of `size` rows, and the base is the row with index `row`.

    Along the axis with `size` times as many entries as in the base, only the entries of this row
    correspond to the base. If the row has padding in the batch only, `padded` describes it.
    """

    row: int
    size: int
    padded: Padded

    def pairs(self, ys: Outputs, bases: Outputs) -> dict[str, OutputPair]:
        """Return the outputs of both passes. Of a list with one entry per row, take the row's."""
        pairs = super().pairs(ys, bases)
        for prefix, indices in _lists(ys).items():
            if indices == {*range(self.size)} and _lists(bases).get(prefix) == {0}:
                for name in [name for name in bases if name.startswith(f"{prefix}[0]")]:
                    rest = name.removeprefix(f"{prefix}[0]")
                    pairs.pop(name, None)
                    if (of_row := f"{prefix}[{self.row}]{rest}") in ys:
                        pairs[name] = OutputPair(ys[of_row], bases[name], self.padded)
        return pairs

    def concerns(self, y: Tensor, base: Tensor) -> bool:
        return y.shape != base.shape

    def ways(self, y: Tensor, base: Tensor) -> Iterator[Aligned]:
        return self.padded.ways(self._part_of_row(y, base), base)

    def fits(self, y: Tensor, base: Tensor) -> bool:
        try:
            return self.padded.fits(self._part_of_row(y, base), base)
        except UserError:
            return False

    def _part_of_row(self, y: Tensor, base: Tensor) -> Tensor:
        """Return the part of a batch's tensor that belongs to the row."""
        if y.ndim != base.ndim or y.shape == base.shape:
            return y
        sizes = [*zip(y.shape, base.shape, strict=True)]
        axes = [axis for axis, (many, few) in enumerate(sizes) if many == few * self.size]
        # padding may make another axis longer by the same factor
        least = min((sizes[axis][1] for axis in axes), default=0)
        axes = [axis for axis in axes if sizes[axis][1] == least]
        if axes:  # several axes if rows are compared with each other, such as images with texts
            for axis in axes:
                y = y.narrow(axis, self.row * sizes[axis][1], sizes[axis][1])
            return y
        axis = next(n for n, (many, few) in enumerate(sizes) if many != few)
        many, few = sizes[axis]  # rows of different lengths, one after the other
        if many < few or self.row not in (0, self.size - 1):
            raise UserError(f"the output {[*y.shape]} has no axis of {self.size} rows")
        return y.narrow(axis, 0 if self.row == 0 else many - few, few)


@dataclass(frozen=True)
class SharedPositions(Overlap):
    """Both rows have `length` positions, of which `shared` correspond.

    The other positions are on `side`: if this is the right, the first `shared` ones correspond.
    `main_name` names the main output. If it is "", the first output is the main one. `pooled` names
    the outputs without positions, which cannot be compared even if an axis has `length` entries.
    """

    length: int
    shared: int
    side: PaddingSide = "right"
    main_name: str = ""
    pooled: frozenset[str] = frozenset()

    def pairs(self, ys: Outputs, bases: Outputs) -> dict[str, OutputPair]:
        pairs = super().pairs(ys, bases)
        return {name: pair for name, pair in pairs.items() if name not in self.pooled}

    def ways(self, y: Tensor, base: Tensor) -> Iterator[Aligned]:
        for aligned in Padded(self.side).ways(y, base):
            yield self._shared(aligned[0]), self._shared(aligned[1])

    def concerns(self, y: Tensor, base: Tensor) -> bool:
        # a tensor without such an axis may be the state after the last position
        return self.length in base.shape[: max(2, base.ndim - 1)]

    def main(self, pairs: Mapping[str, OutputPair]) -> str:
        return self.main_name if self.main_name in pairs else next(iter(pairs))

    def fits(self, y: Tensor, base: Tensor) -> bool:
        return Padded().fits(y, base)

    def _shared(self, x: Tensor) -> Tensor:
        start = self.length - self.shared if self.side == "left" else 0
        for axis, size in enumerate(x.shape):
            x = x.narrow(axis, start, self.shared) if size == self.length else x
        return x


def _lists(outputs: Outputs) -> dict[str, set[int]]:
    """Return the indices of each outermost list of outputs, keyed by the list's name."""
    indices: dict[str, set[int]] = {}
    for name in outputs:
        if entry := re.match(r"([^\[]*)\[(\d+)\]", name):
            indices.setdefault(entry[1], set()).add(int(entry[2]))
    return indices


def _distance(y: Tensor, base: Tensor) -> float:
    """Return the relative change of floats, or the number of integers that differ."""
    return relative_change(y, base) if y.is_floating_point() else float((y != base).sum())


def comparable(ys: Outputs, bases: Outputs, overlap: Overlap) -> dict[str, OutputPair]:
    """Return the outputs that both passes have and that can be compared, keyed as in the base.

    The first one is the main output, which is always compared. Any other one is left out if it has
    no rows or no positions, whichever the two passes differ in, or if it grows by more than the
    padding, as a table of relative positions does. Raises UserError if the passes have no output in
    common.
    """
    pairs = overlap.pairs(ys, bases)
    if not pairs:
        raise UserError("the two passes have no output in common")
    main = overlap.main(pairs)
    fitting = {
        name: pairs[name]
        for name, (y, base, how) in pairs.items()
        if name != main and how.concerns(y, base) and how.fits(y, base)
    }
    return {main: pairs[main], **fitting}
