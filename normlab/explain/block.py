"""Decides what a block of samples x tokens x features looks like cut up by axes.

A cell is `(sample, token, feature)`, counted from 0 and written from 1. A group is a set of cells
that share their statistics. No torch: the pictures and the text are drawn from this alone.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import product

Cell = tuple[int, int, int]
Shape = tuple[int, int, int]

AXES = ("batch", "position", "feature")
NAMES = ("sample", "token", "feature")
EXAMPLE: Cell = (0, 0, 0)


@dataclass(frozen=True)
class Axes:
    """What the three axes are called: `pooled` where they are pooled over, `counted` along them."""

    pooled: tuple[str, str, str]
    counted: tuple[str, str, str]


TEXT = Axes(AXES, NAMES)


def cells(shape: Shape) -> list[Cell]:
    """List the cells of a block, features fastest."""
    samples, tokens, features = map(range, shape)
    return list(product(samples, tokens, features))


def pooled(cell: Cell, pools: Set[str], shape: Shape) -> frozenset[Cell]:
    """Return the cells that share a statistic with `cell`: any index along a pooled axis."""
    kept = [i for i, axis in enumerate(AXES) if axis not in pools]
    return frozenset(other for other in cells(shape) if all(other[i] == cell[i] for i in kept))


def groups(pools_of: Mapping[Cell, frozenset[Cell]]) -> list[frozenset[Cell]]:
    """List the distinct groups in the order of their first cells."""
    return list(dict.fromkeys(pools_of[cell] for cell in sorted(pools_of)))


def axes_in_words(pools: Iterable[str], axes: Axes = TEXT) -> str:
    """Return the axes as text: `batch, position`, or `nothing`."""
    there = set(pools)
    named = zip(AXES, axes.pooled, strict=True)
    return ", ".join(name for axis, name in named if axis in there) or "nothing"


def describe(group: Set[Cell], shape: Shape) -> str:
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
