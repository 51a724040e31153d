"""Decides what padding does to a norm, by adding it: lengths 3 and 2, as in D0, part 3.

Sample 2 of the documents' tensor loses its last token, and zeros stand there instead. Each way of
treating padding that the norm offers is tried.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from normlab.explain.block import Cell, cells, describe, groups, pooled
from normlab.explain.dependence import SHAPE
from normlab.explain.subject import Subject, run
from normlab.explain.worked import document, line_through
from normlab.norms.base import Norm, RunningNorm

_PAD: tuple[int, int] = (1, 2)  # the last token of the second sample
FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class Figures:
    """The mean and variance that the module normalizes by."""

    mean: float
    var: float


@dataclass(frozen=True)
class Treatment:
    """One way of treating padding, and what the module does under it.

    `used` are the statistics of the group that is shown, `out` the output of its first real value,
    `five` the statistics of 1 2 3 4 5 and five zeros of padding. `moves` tells whether any real
    token comes out otherwise when other values stand at the padding, or when two positions and a
    sample of nothing but padding are added.
    """

    name: str | None
    used: Figures | None
    out: float
    five: Figures | None
    moves: bool


@dataclass(frozen=True)
class Padding:
    """The group that is shown, its real and padded values, and each treatment."""

    group: str
    real: list[float]
    padded: list[float]
    treatments: list[Treatment]


def pad(subject: Subject) -> Padding:
    """Try every treatment of padding that the norm of a subject has.

    Raises what the norm raises on the tensor.
    """
    choices = subject.alternatives("padding")
    norm = subject.make()
    x, valid = padded_document()
    group = _shown(norm, valid)
    real = [cell for cell in group if valid[cell[:2]]]
    treatments = []
    for name in choices or (None,):
        norm = subject.make() if name is None else subject.make(padding=name)
        used, y = figures(norm, x, valid, real)
        treatments.append(
            Treatment(name, used, float(y[real[0]]), _five(subject, name), _moves(norm, x, valid))
        )
    return Padding(
        group=describe(set(group), SHAPE),
        real=[float(x[cell]) for cell in real],
        padded=[float(x[cell]) for cell in group if not valid[cell[:2]]],
        treatments=treatments,
    )


def padded_document() -> tuple[Tensor, Tensor]:
    """Return the documents' tensor with its last token as padding, and which tokens are real."""
    x = document()
    valid = torch.ones(x.shape[:2], dtype=torch.bool)
    x[_PAD], valid[_PAD] = 0, False
    return x, valid


def _shown(norm: Norm, valid: Tensor) -> list[Cell]:
    """Return the first group that padding stands in; the first of all where none is."""
    found = groups({cell: pooled(cell, norm.pools, SHAPE) for cell in cells(SHAPE)})
    sizes = [sum(bool(valid[cell[:2]]) for cell in group) for group in found]
    mixed = (g for g, size in zip(found, sizes, strict=True) if 0 < size < len(g))
    return sorted(next(mixed, found[0]))


def figures(
    norm: Norm, x: Tensor, valid: Tensor, real: Sequence[Cell]
) -> tuple[Figures | None, Tensor]:
    """Return the statistics that a norm takes of the group of some real cells, and its output."""
    norm = copy.deepcopy(norm)
    y = run(norm, x, valid)
    if isinstance(norm, RunningNorm) and norm.seen is not None:
        mean, var = (table.expand(x.shape)[real[0]] for table in norm.seen[:2])
        return Figures(float(mean), float(var)), y
    line = line_through([float(x[c]) for c in real], [float(y[c]) for c in real])
    if line is None:
        return None, y
    var = max(line.divisor**2 - float(getattr(norm, "eps", 0.0)), 0.0)
    return Figures(line.center, var), y


def _moves(norm: Norm, x: Tensor, valid: Tensor) -> bool:
    """Tell whether real tokens come out otherwise under other padding, or under more of it."""
    before = run(copy.deepcopy(norm), x, valid)[valid]
    other = x.clone()
    other[~valid] = 100.0
    more, still = F.pad(x, (0, 0, 0, 2, 0, 1)), F.pad(valid, (0, 2, 0, 1))
    after = (run(copy.deepcopy(norm), other, valid)[valid], run(norm, more, still)[still])
    return any(not torch.allclose(before, y, rtol=0, atol=_NEGLIGIBLE) for y in after)


def _five(subject: Subject, padding: str | None) -> Figures | None:
    """Return the statistics of 1 2 3 4 5 and five padded zeros, along an axis of tokens."""
    norm = subject.make() if padding is None else subject.make(padding=padding)
    if norm.pools.isdisjoint({"batch", "position"}):
        return None
    values = torch.tensor([*FIVE, *[0.0] * len(FIVE)], dtype=torch.float64)
    row = (1, -1) if "position" in norm.pools else (-1, 1)
    # Every feature the same: pooling features as well then leaves mean and variance as they are.
    x = values.reshape(row).unsqueeze(-1).expand(-1, -1, SHAPE[2]).contiguous()
    valid = torch.tensor([True] * len(FIVE) + [False] * len(FIVE)).reshape(row)
    real = [(int(s), int(t), 0) for s, t in valid.nonzero().tolist()]
    return figures(norm, x, valid, real)[0]
