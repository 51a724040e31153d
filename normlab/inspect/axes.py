"""What shares its statistics with what: declared axes, and what changing a value really moves.

A block is samples x tokens x features. A cell is `(sample, token, feature)`, counted from 0 and
written from 1; a group is a set of cells that share their statistics.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from normlab.inspect.subject import AXES, Norm, look, remembers, run, tables

Cell = tuple[int, int, int]
Shape = tuple[int, int, int]

NAMES = ("sample", "token", "feature")
OF_IMAGES = ("N", "(H, W)", "C")
EXAMPLE: Cell = (0, 0, 0)
SHAPE: Shape = (2, 3, 4)
_CHANGES = ((1.0, 0.7), (-40.0, 0.0), (0.0, 0.0))  # factor and summand


def cells(shape: Shape = SHAPE) -> list[Cell]:
    """List the cells of a block, features fastest."""
    samples, tokens, features = map(range, shape)
    return list(product(samples, tokens, features))


def pooled(cell: Cell, pools: Set[str], shape: Shape = SHAPE) -> frozenset[Cell]:
    """Return the cells that share a statistic with `cell`: any index along a pooled axis."""
    kept = [i for i, axis in enumerate(AXES) if axis not in pools]
    return frozenset(other for other in cells(shape) if all(other[i] == cell[i] for i in kept))


def groups(pools_of: Mapping[Cell, frozenset[Cell]]) -> list[frozenset[Cell]]:
    """List the distinct groups in the order of their first cells."""
    return list(dict.fromkeys(pools_of[cell] for cell in sorted(pools_of)))


def in_order(pools: Iterable[str]) -> list[str]:
    """List axes in the order batch, position, feature."""
    return sorted(pools, key=AXES.index)


def axes_in_words(pools: Iterable[str], names: Sequence[str] = AXES) -> str:
    """Return the axes as text: `batch, position`, or `nothing`."""
    return ", ".join(names[AXES.index(axis)] for axis in in_order(pools)) or "nothing"


def describe(group: Set[Cell], shape: Shape = SHAPE) -> str:
    """Return what the cells of a group have in common: `sample 1, token 1`, `features 1-2`."""
    parts = []
    for axis, name in enumerate(NAMES):
        found = sorted({cell[axis] + 1 for cell in group})
        if len(found) == 1 and shape[axis] > 1:
            parts.append(f"{name} {found[0]}")
        elif len(found) < shape[axis]:
            dense = found == list(range(found[0], found[-1] + 1))
            which = f"{found[0]}-{found[-1]}" if dense else " ".join(map(str, found))
            parts.append(f"{name}s {which}")
    return ", ".join(parts) or "the whole block"


def distinct(shape: Shape) -> Tensor:
    """Return fixed values in -2..2 among which no two and no two differences agree."""
    count = shape[0] * shape[1] * shape[2]
    golden = torch.arange(1, count + 1, dtype=torch.float64) * 0.6180339887498949
    return (golden % 1 * 4 - 2).reshape(shape)


def changed(x: Tensor, place: Any) -> Iterable[Tensor]:
    """Yield copies of `x` with other values at `place`."""
    for factor, summand in _CHANGES:
        other = x.clone()
        other[place] = other[place] * factor + summand
        yield other


def dependence(norm: Norm, *, features: int | None = None) -> dict[Cell, frozenset[Cell]]:
    """Return for each output cell the input cells that it depends on, bit for bit.

    Nothing is believed that the norm declares. Where its groups are smaller than its axes (group
    norm takes the features of a token in parts) this finds it. Inputs are changed in the first
    `features` alone, where given.
    """
    shape = (*SHAPE[:2], norm.dim)
    x = distinct(shape)
    before = look(norm, x)
    found: dict[Cell, set[Cell]] = {cell: set() for cell in cells(shape)}
    for source in cells((*SHAPE[:2], features or norm.dim)):
        moved = torch.stack([look(norm, other) != before for other in changed(x, source)]).any(0)
        for sample, token, feature in moved.nonzero().tolist():
            found[sample, token, feature].add(source)
    return {cell: frozenset(sources) for cell, sources in found.items()}


def pooled_cells(norm: Norm, seen: Mapping[Cell, frozenset[Cell]]) -> dict[Cell, frozenset[Cell]]:
    """Return for each cell those of its axes' group that really take part in its statistics.

    A norm that looks at no other cell, because running statistics stand in, has the group of its
    axes.
    """
    found = {}
    for cell in cells():
        group = pooled(cell, norm.pools)
        part = group & (seen[cell] | {cell})
        found[cell] = part if len(part) > 1 else group
    return found


def axes_moving_statistics(norm: Norm) -> set[str]:
    """Return the axes of tokens along which the input moves running statistics."""
    if not remembers(norm):
        return set()

    def after(x: Tensor) -> Tensor:
        other = copy.deepcopy(norm)
        run(other, x)
        return torch.cat([table.flatten().double() for table in tables(other).values()])

    generator = torch.Generator().manual_seed(7)
    x = torch.randn(3, 4, norm.dim, generator=generator, dtype=torch.float64) * 3 + 2
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
    def of(cls, found: Mapping[Cell, frozenset[Cell]]) -> "Sees":
        """Sum up over all cells."""
        pairs = [(cell, other) for cell, seen in found.items() for other in seen]
        same = [(cell, other) for cell, other in pairs if cell[0] == other[0]]
        return cls(
            features=any(a[1] == b[1] and a[2] != b[2] for a, b in same),
            earlier=any(b[1] < a[1] for a, b in same),
            later=any(b[1] > a[1] for a, b in same),
            others=any(a[0] != b[0] for a, b in pairs),
        )

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
