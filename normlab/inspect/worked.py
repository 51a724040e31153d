"""The documents' own numbers through the real module: their tensor, and its padding.

The statistics of a group are taken twice. Once by hand, as the mean and variance of its values.
And once out of the module: within a group its output is a straight line of its input, whose zero
is what was subtracted and whose slope is what was divided by. Where the two agree the formula is
known; where they do not, nothing is claimed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.inspect.axes import Cell, cells, describe, groups, pooled
from normlab.inspect.subject import Norm, OnTable, look, run, trained
from normlab.norms.base import RunningNorm

# Two samples of three tokens of four features.
DOCUMENT = (
    ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0), (9.0, 10.0, 11.0, 12.0)),
    ((-1.0, 0.0, 1.0, 2.0), (3.0, 4.0, 5.0, 6.0), (7.0, 8.0, 9.0, 10.0)),
)
Block = list[list[list[float]]]
Kind = Literal["identity", "standardize", "scale", "other"]
_CLOSE = 1e-6
_NEGLIGIBLE = 1e-9
_PAD = (1, 2)  # the last token of the second sample


def document() -> Float[Tensor, "2 3 4"]:
    """Return the documents' tensor."""
    return torch.tensor(DOCUMENT, dtype=torch.float64)


@dataclass(frozen=True)
class Line:
    """The output as `(x - center) / divisor`."""

    center: float
    divisor: float


@dataclass(frozen=True)
class Pair:
    """A mean and a variance; a mean square has mean 0."""

    mean: float
    var: float


@dataclass(frozen=True)
class Group:
    """Cells with one statistic: their mean and variance, and what the module made of them.

    `entered` is the estimate that entered the running statistics, `kept` what these became.
    """

    name: str
    cells: list[Cell]
    values: list[float]
    mean: float
    var: float
    line: Line | None
    entered: Pair | None
    kept: Pair | None


@dataclass(frozen=True)
class Worked:
    """The documents' tensor, what came out, and the statistics in between.

    `start` is what the running statistics of the first group were before the batch.
    """

    x: Block
    train: Block
    eval: Block
    same_in_eval: bool
    groups: list[Group]
    kind: Kind
    momentum: float | None
    start: Pair | None


def work(norm: Norm, pooled: Mapping[Cell, frozenset[Cell]]) -> Worked:
    """Send the documents' tensor through a new norm; `pooled` gives each cell's group.

    Raises what the norm raises on the tensor.
    """
    x = document()
    train = look(norm, x)
    after = trained(norm, x)
    out = run(after, x)
    found = [_group(sorted(group), x, train, after) for group in groups(pooled)]
    momentum = start = None
    if isinstance(norm, RunningNorm):
        momentum, start = norm.momentum, _at(found[0].cells[0], *norm.running_moments())
    return Worked(
        x=x.tolist(),
        train=train.tolist(),
        eval=out.tolist(),
        same_in_eval=torch.equal(train, out),
        groups=found,
        kind="identity" if torch.equal(x, train) else _kind(norm, found),
        momentum=momentum,
        start=start,
    )


def _group(members: list[Cell], x: Tensor, y: Tensor, after: Norm) -> Group:
    values = [float(x[cell]) for cell in members]
    mean = math.fsum(values) / len(values)
    entered = kept = None
    if isinstance(after, RunningNorm):
        if after.seen is not None:
            entered = _at(members[0], *after.estimates(after.seen))
        kept = _at(members[0], *after.running_moments())
    return Group(
        name=describe(set(members)),
        cells=members,
        values=values,
        mean=mean,
        var=math.fsum((value - mean) ** 2 for value in values) / len(values),
        line=line_through(values, [float(y[cell]) for cell in members]),
        entered=entered,
        kept=kept,
    )


def line_through(xs: Sequence[float], ys: Sequence[float]) -> Line | None:
    """Return the straight line that all points are on, as what is subtracted and divided by."""
    low, high = min(range(len(xs)), key=xs.__getitem__), max(range(len(xs)), key=xs.__getitem__)
    if xs[low] == xs[high] or ys[low] == ys[high]:
        return None
    divisor = (xs[high] - xs[low]) / (ys[high] - ys[low])
    center = xs[low] - ys[low] * divisor
    on_it = [(x - center) / divisor for x in xs]
    fits = all(math.isclose(a, b, abs_tol=_CLOSE) for a, b in zip(on_it, ys, strict=True))
    return Line(center, divisor) if fits else None


def _at(cell: Cell, mean: Tensor, var: Tensor) -> Pair:
    """Return the row of a cell's position and the column of its feature, where there are such."""
    _, token, feature = cell
    rows, cols = mean.shape
    at = (token if rows > 1 else 0, feature if cols > 1 else 0)
    return Pair(float(mean[at]), float(var[at]))


def _kind(norm: Norm, found: Sequence[Group]) -> Kind:
    """Return which formula the module's outputs agree with, in every group."""
    eps = float(getattr(norm, "eps", 0.0))

    def agrees(line: Line | None, center: float, square: float) -> bool:
        if line is None:
            return False
        pairs = ((line.center, center), (line.divisor, math.sqrt(square + eps)))
        return all(math.isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE) for a, b in pairs)

    if all(agrees(group.line, group.mean, group.var) for group in found):
        return "standardize"
    if all(agrees(group.line, 0.0, group.var + group.mean**2) for group in found):
        return "scale"
    return "other"


@dataclass(frozen=True)
class Treatment:
    """One way of treating padding, and what the module does under it.

    `used` are the statistics of the group that is shown, `out` the output of its first real value.
    `moves` tells whether the output of any real token changes when other values are at the padding,
    or when two positions and a sample of nothing but padding are added.
    """

    name: str | None
    used: Pair | None
    out: float
    moves: bool


@dataclass(frozen=True)
class Padding:
    """The group that is shown, its real and padded values, and each treatment."""

    group: str
    real: list[float]
    padded: list[float]
    treatments: list[Treatment]


def pad(subject: OnTable) -> Padding:
    """Try every treatment of padding that a norm has, on lengths 3 and 2 of the documents' tensor.

    The last token of sample 2 becomes padding of zeros. Raises what the norm raises on it.
    """
    x = document()
    valid = torch.ones(x.shape[:2], dtype=torch.bool)
    x[_PAD], valid[_PAD] = 0, False
    norm = subject.make()
    found = groups({cell: pooled(cell, norm.pools) for cell in cells()})
    mixed = (group for group in found if len({bool(valid[cell[:2]]) for cell in group}) == 2)
    group = sorted(next(mixed, found[0]))  # the first one with real and padded tokens
    real = [cell for cell in group if valid[cell[:2]]]
    treatments = []
    for name in subject.alternatives("padding") or (None,):
        norm = subject.make() if name is None else subject.make(padding=name)
        moves = padding_moves(norm, x, valid)
        y = run(norm, x, valid)
        used = _used(norm, real, x, y)
        treatments.append(Treatment(name, used, float(y[real[0]]), moves))
    return Padding(
        group=describe(set(group)),
        real=[float(x[cell]) for cell in real],
        padded=[float(x[cell]) for cell in group if not valid[cell[:2]]],
        treatments=treatments,
    )


def _used(norm: Norm, real: Sequence[Cell], x: Tensor, y: Tensor) -> Pair | None:
    """Return the mean and variance that the group of some real cells was normalized by."""
    if isinstance(norm, RunningNorm) and norm.seen is not None:
        mean, var = (table.expand(x.shape)[real[0]] for table in norm.seen[:2])
        return Pair(float(mean), float(var))
    line = line_through([float(x[c]) for c in real], [float(y[c]) for c in real])
    if line is None:
        return None
    return Pair(line.center, max(line.divisor**2 - float(getattr(norm, "eps", 0.0)), 0.0))


def padding_moves(norm: Norm, x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> bool:
    """Tell whether real tokens change with other or more padding."""
    before = look(norm, x, valid)[valid]
    other = x.clone()
    other[~valid] = 100.0
    more, still = F.pad(x, (0, 0, 0, 2, 0, 1)), F.pad(valid, (0, 2, 0, 1))
    after = (look(norm, other, valid)[valid], look(norm, more, still)[still])
    return any(not torch.allclose(before, y, rtol=0, atol=_NEGLIGIBLE) for y in after)
