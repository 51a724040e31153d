"""Decides what an output depends on, by trying: change one value of the input, see what moves.

Nothing is believed that the norm declares. Where its groups are smaller than its axes (group norm
takes the features of a token in parts) this finds it.
"""

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

import torch
from torch import Tensor

from normlab.explain.block import AXES, Cell, Shape, cells, pooled
from normlab.explain.subject import after_a_batch, run
from normlab.norms.base import Norm

SHAPE: Shape = (2, 3, 4)
_LARGE: Shape = (9, 7, 4)  # enough values along each axis that order is not kept by luck


def unlike(shape: Shape) -> Tensor:
    """Return a block of fixed values in -2..2 among which no two and no two differences agree."""
    count = shape[0] * shape[1] * shape[2]
    golden = torch.arange(1, count + 1, dtype=torch.float64) * 0.6180339887498949
    return (golden % 1 * 4 - 2).reshape(shape)


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
    def itself_alone(self) -> bool:
        """Whether an output depends on its own value only."""
        return not any(asdict(self).values())

    def in_words(self) -> str:
        """Return it as a short text."""
        said = {
            "features": "its token's features",
            "earlier": "earlier tokens",
            "later": "later tokens",
            "others": "other samples",
        }
        parts = [said[item.name] for item in fields(self) if getattr(self, item.name)]
        return ", ".join(parts) or "its own value alone"


def dependence(norm: Norm) -> dict[Cell, frozenset[Cell]]:
    """Return for each output cell the input cells that it depends on; `norm` stays as it was."""
    x = unlike(SHAPE)
    before = run(copy.deepcopy(norm), x)
    found: dict[Cell, set[Cell]] = {cell: set() for cell in cells(SHAPE)}
    for source in cells(SHAPE):
        for change in (x[source] + 0.7, x[source] * -40):
            other = x.clone()
            other[source] = change
            moved = (run(copy.deepcopy(norm), other) != before).nonzero().tolist()
            for sample, token, feature in moved:
                found[sample, token, feature].add(source)
    return {cell: frozenset(sources) for cell, sources in found.items()}


def trained(norm: Norm) -> Norm:
    """Return the norm in eval mode after one batch."""
    return after_a_batch(norm, unlike(SHAPE))


def pooled_cells(norm: Norm, seen: Mapping[Cell, frozenset[Cell]]) -> dict[Cell, frozenset[Cell]]:
    """Return for each cell those of its axes' group that really take part in its statistics.

    A norm that looks at no other cell now, since what it kept stands in, has the group of its axes.
    """
    found = {}
    for cell in cells(SHAPE):
        group = pooled(cell, norm.pools, SHAPE)
        part = group & (seen[cell] | {cell})
        found[cell] = part if len(part) > 1 else group
    return found


def keeps_order(norm: Norm) -> dict[str, bool]:
    """Tell for each axis whether values along it come out in the order in which they went in."""
    # Means and spreads must differ between any two groups: these differ along every axis.
    steps = [torch.arange(1, size + 1, dtype=torch.float64) for size in _LARGE]
    samples, tokens, features = torch.meshgrid(*steps, indexing="ij")
    x = unlike(_LARGE) * (samples + tokens * features) + 3 * torch.sin(samples * tokens * features)
    y = run(copy.deepcopy(norm), x)
    return {axis: bool((x.argsort(dim) == y.argsort(dim)).all()) for dim, axis in enumerate(AXES)}
