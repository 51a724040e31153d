"""Sorts the axes that a norm pools over, and writes them as text."""

from collections.abc import Iterable
from typing import get_args

from normlab.norms.moments import Axis

AXES: tuple[str, ...] = get_args(Axis)


def in_order(pools: Iterable[str]) -> list[str]:
    """Return axes in the order batch, position, feature."""
    return sorted(pools, key=AXES.index)


def axes_in_words(pools: Iterable[str]) -> str:
    """Return the axes as text: `batch, position`, or `nothing`."""
    return ", ".join(in_order(pools)) or "nothing"
