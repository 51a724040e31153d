"""Finds what a norm pools over and depends on, by changing one input value at a time.

A block has samples x tokens x features. A cell is one of its values, at a `CellIndex`. A
`Dependence` says for each output cell which input cells it depends on.
"""

from collections.abc import Set
from itertools import product
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from normlab.inspection.examples.articles import SHAPE
from normlab.inspection.norm.norm_calls import affected, normal, run_copy, trained_on
from normlab.norms.axes import AXES
from normlab.norms.base import Norm
from normlab.norms.moments import Axis

CellIndex = tuple[int, int, int]
"""The indices `(sample, token, feature)` of a cell."""
Dependence = Bool[Tensor, "S T F s t f"]
Influence = Literal["own token", "earlier tokens", "later tokens", "other samples"]
"""Values that an output may depend on, besides the input in the same cell."""

AXIS_OF: dict[Influence, Axis] = {
    "own token": "feature",
    "earlier tokens": "position",
    "later tokens": "position",
    "other samples": "batch",
}
"""The axis that a norm pools over if its outputs depend on such values."""


def dependence(norm: Norm, *, features: int | None = None) -> Dependence:
    """Return which input cells affect each output cell, even if only in its last bit.

    Inputs are changed one at a time, regardless of the axes that the norm declares, so the result
    also shows how group norm splits features. If `features` is set, only that many features are
    changed, from the first on.
    """
    x = normal(*SHAPE[:2], norm.dim, seed=7)
    before = run_copy(norm, x)
    cells = torch.zeros(*x.shape, *x.shape, dtype=torch.bool)
    for source in product(*map(range, (*SHAPE[:2], features or norm.dim))):
        cells[(..., *source)] = affected(norm, x, source, before)
    return cells


def dependence_in_eval(norm: Norm) -> Dependence:
    """Train a copy of the norm on one batch, and return its dependence in eval mode."""
    return dependence(trained_on(norm, normal(*SHAPE, seed=7)))


def influences(cells: Dependence) -> list[Influence]:
    """Return the kinds of values that any output depends on."""
    sample, token, feature, from_sample, from_token, from_feature = cells.nonzero().T
    same = sample == from_sample
    depends: dict[Influence, Tensor] = {
        "own token": same & (token == from_token) & (feature != from_feature),
        "earlier tokens": same & (from_token < token),
        "later tokens": same & (from_token > token),
        "other samples": ~same,
    }
    return [influence for influence, cells_of in depends.items() if cells_of.any()]


def by_axes(pools: Set[str]) -> Dependence:
    """Return which cells share statistics, because they differ only along the pooled axes."""
    sizes = zip(AXES, SHAPE, strict=True)
    same = [torch.ones(n, n) if axis in pools else torch.eye(n) for axis, n in sizes]
    return torch.einsum("Ss,Tt,Ff->STFstf", *same).bool()


def pooled_cells(norm: Norm, dependences: Dependence) -> Dependence:
    """Return, for each cell, the cells of its declared group that actually affect its output.

    If no other cell affects it, because the norm uses running statistics, return the whole group.
    """
    group = by_axes(norm.pools)
    part = group & (dependences | by_axes(frozenset()))
    alone = part.sum((3, 4, 5), keepdim=True) <= 1
    return torch.where(alone, group, part)


def distinct_groups(cells: Dependence) -> list[list[CellIndex]]:
    """Return the distinct groups of cells in order of their first cell. Each group is sorted."""
    rows = [tuple(map(tuple, row.nonzero().tolist())) for row in cells.flatten(0, 2)]
    return [list(row) for row in dict.fromkeys(rows)]
