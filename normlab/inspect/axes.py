"""What shares its statistics with what: declared axes, and what changing a value really moves.

A block is samples x tokens x features. Which input cells an output cell goes with is a boolean
tensor, output cells first. A cell is `(sample, token, feature)`, counted from 0, written from 1.
"""

import copy
from collections.abc import Iterable, Sequence, Set
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from normlab.inspect.subject import AXES, Norm, look, normal, remembers, run, tables

Cell = tuple[int, int, int]
Cells = Bool[Tensor, "S T F s t f"]

NAMES = ("sample", "token", "feature")
OF_IMAGES = ("N", "(H, W)", "C")
EXAMPLE: Cell = (0, 0, 0)
SHAPE = (2, 3, 4)
_CHANGES = ((1.0, 0.7), (-40.0, 0.0), (0.0, 0.0))  # factor and summand


def by_axes(pools: Set[str]) -> Cells:
    """Return which cells share a statistic: those with any index along the pooled axes."""
    sizes = zip(AXES, SHAPE, strict=True)
    same = [torch.ones(n, n) if axis in pools else torch.eye(n) for axis, n in sizes]
    return torch.einsum("Ss,Tt,Ff->STFstf", *same).bool()


def groups(cells: Cells) -> list[list[Cell]]:
    """List the distinct groups in the order of their first cells, each in order."""
    rows = cells.flatten(0, 2).flatten(1).tolist()
    where: list[Cell] = [(s, t, f) for s, t, f in product(*map(range, cells.shape[3:]))]
    found = dict.fromkeys(tuple(row) for row in rows)
    return [[cell for cell, there in zip(where, row, strict=True) if there] for row in found]


def in_order(pools: Iterable[str]) -> list[str]:
    """List axes in the order batch, position, feature."""
    return sorted(pools, key=AXES.index)


def axes_in_words(pools: Iterable[str], names: Sequence[str] = AXES) -> str:
    """Return the axes as text: `batch, position`, or `nothing`."""
    return ", ".join(names[AXES.index(axis)] for axis in in_order(pools)) or "nothing"


def describe(group: Iterable[Cell]) -> str:
    """Return what the cells of a group have in common: `sample 1, token 1`, `features 1-2`."""
    parts = []
    for name, size, numbers in zip(NAMES, SHAPE, zip(*group, strict=True), strict=True):
        found = sorted({number + 1 for number in numbers})
        if len(found) == 1:
            parts.append(f"{name} {found[0]}")
        elif len(found) < size:
            dense = found == list(range(found[0], found[-1] + 1))
            which = f"{found[0]}-{found[-1]}" if dense else " ".join(map(str, found))
            parts.append(f"{name}s {which}")
    return ", ".join(parts) or "the whole block"


def distinct(shape: Sequence[int] = SHAPE) -> Tensor:
    """Return fixed values in -2..2 among which no two and no two differences agree."""
    golden = torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float64)
    return (golden * 0.6180339887498949 % 1 * 4 - 2).reshape(*shape)


def changed(x: Tensor, place: Any) -> Iterable[Tensor]:
    """Yield copies of `x` with other values at `place`."""
    for factor, summand in _CHANGES:
        other = x.clone()
        other[place] = other[place] * factor + summand
        yield other


def dependence(norm: Norm, *, features: int | None = None) -> Cells:
    """Return the input cells that each output cell depends on, bit for bit.

    Nothing is believed that the norm declares. Where its groups are smaller than its axes (group
    norm takes the features of a token in parts) this finds it. Inputs are changed in the first
    `features` alone, where given.
    """
    x = distinct((*SHAPE[:2], norm.dim))
    before = look(norm, x)
    found = torch.zeros(*x.shape, *x.shape, dtype=torch.bool)
    for source in product(*map(range, (*SHAPE[:2], features or norm.dim))):
        moved = [look(norm, other) != before for other in changed(x, source)]
        found[(..., *source)] = torch.stack(moved).any(0)
    return found


def pooled_cells(norm: Norm, seen: Cells) -> Cells:
    """Return the cells of each cell's axes' group that really take part in its statistics.

    A norm that looks at no other cell, because running statistics stand in, has the group of its
    axes.
    """
    group = by_axes(norm.pools)
    part = group & (seen | by_axes(frozenset()))
    alone = part.sum((3, 4, 5), keepdim=True) <= 1
    return torch.where(alone, group, part)


def axes_moving_statistics(norm: Norm) -> set[str]:
    """Return the axes of tokens along which the input moves running statistics."""
    if not remembers(norm):
        return set()

    def after(x: Tensor) -> Tensor:
        other = copy.deepcopy(norm)
        run(other, x)
        return torch.cat([table.flatten().double() for table in tables(other).values()])

    x = normal(3, 4, norm.dim, seed=7)
    before = after(x)
    return {
        axis
        for axis, place in zip(AXES, ((slice(1, None),), (0, slice(1, None))), strict=False)
        for other in changed(x, place)
        if not torch.equal(after(other), before)
    }


@dataclass(frozen=True)
class Sees:
    """What of the block, besides its own value, an output depends on."""

    features: bool
    earlier: bool
    later: bool
    others: bool

    @classmethod
    def of(cls, found: Cells) -> "Sees":
        """Sum up over all cells."""
        sample, token, feature, from_sample, from_token, from_feature = found.nonzero().T
        same = sample == from_sample
        seen = (
            same & (token == from_token) & (feature != from_feature),
            same & (from_token < token),
            same & (from_token > token),
            ~same,
        )
        return cls(*(bool(each.any()) for each in seen))

    @property
    def axes(self) -> set[str]:
        """The axes along which other values move an output."""
        seen = (self.others, self.earlier or self.later, self.features)
        return {axis for axis, moves in zip(AXES, seen, strict=True) if moves}

    def in_words(self) -> str:
        """Return it as a short text."""
        named = ("its token's features", "earlier tokens", "later tokens", "other samples")
        parts = [text for text, seen in zip(named, asdict(self).values(), strict=True) if seen]
        return ", ".join(parts) or "its own value alone"
