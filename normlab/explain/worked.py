"""Decides the worked example: the documents' tensor through the real module, in both modes.

The statistics of a group are taken twice. Once by hand, as the mean and variance of its values.
And once out of the module: within a group its output is a straight line of its input, whose zero
is what was subtracted and whose slope is what was divided by. Where the two agree the formula is
known; where they do not, nothing is claimed.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from normlab.explain.block import Cell, Shape, describe, groups
from normlab.explain.dependence import SHAPE
from normlab.explain.subject import after_a_batch, run
from normlab.norms.base import Norm, RunningNorm

# D0, section 2: two samples of three tokens of four features.
DOCUMENT = (
    ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0), (9.0, 10.0, 11.0, 12.0)),
    ((-1.0, 0.0, 1.0, 2.0), (3.0, 4.0, 5.0, 6.0), (7.0, 8.0, 9.0, 10.0)),
)
Block = list[list[list[float]]]
Kind = Literal["identity", "standardize", "scale", "other"]
_CLOSE = 1e-6


def document() -> Tensor:
    """Return the documents' tensor, `[2, 3, 4]`."""
    return torch.tensor(DOCUMENT, dtype=torch.float64)


@dataclass(frozen=True)
class Line:
    """The output as `(x - center) / divisor`."""

    center: float
    divisor: float


@dataclass(frozen=True)
class Kept:
    """A mean and a variance that a norm keeps of a group; a mean square is one of mean 0."""

    mean: float
    var: float


@dataclass(frozen=True)
class Group:
    """Cells with one statistic: their mean and variance, and what the module made of them.

    `entered` is what the module took of them for its running statistics, `kept` what these became.
    """

    name: str
    cells: list[Cell]
    values: list[float]
    mean: float
    var: float
    line: Line | None
    entered: Kept | None
    kept: Kept | None


@dataclass(frozen=True)
class Worked:
    """The documents' tensor, what came out, and the statistics in between."""

    shape: Shape
    x: Block
    train: Block
    eval: Block
    same_in_eval: bool
    groups: list[Group]
    kind: Kind
    momentum: float | None
    unbiased: bool | None
    update_holds: bool | None


def work(norm: Norm, pooled: Mapping[Cell, frozenset[Cell]]) -> Worked:
    """Send the documents' tensor through a new norm; `pooled` gives each cell's group.

    Raises what the norm raises on the tensor.
    """
    x = document()
    train = run(copy.deepcopy(norm), x)
    after = after_a_batch(norm, x)
    out = run(after, x)
    running = after if isinstance(after, RunningNorm) else None
    found = [_group(sorted(group), x, train, running) for group in groups(pooled)]
    momentum = getattr(norm, "momentum", None) if running else None
    unbiased = getattr(norm, "unbiased", None) if running else None
    return Worked(
        shape=SHAPE,
        x=x.tolist(),
        train=train.tolist(),
        eval=out.tolist(),
        same_in_eval=torch.equal(train, out),
        groups=found,
        kind=_kind(norm, found, same=torch.equal(x, train)),
        momentum=momentum,
        unbiased=unbiased,
        update_holds=_update_holds(found, momentum, unbiased) if running else None,
    )


def line_through(xs: Sequence[float], ys: Sequence[float]) -> Line | None:
    """Return the straight line that all points are on, as what is subtracted and divided by."""
    low, high = min(range(len(xs)), key=xs.__getitem__), max(range(len(xs)), key=xs.__getitem__)
    if xs[low] == xs[high] or ys[low] == ys[high]:
        return None
    divisor = (xs[high] - xs[low]) / (ys[high] - ys[low])
    center = xs[low] - ys[low] * divisor
    fits = all(
        math.isclose((x - center) / divisor, y, abs_tol=_CLOSE) for x, y in zip(xs, ys, strict=True)
    )
    return Line(center, divisor) if fits else None


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the variance (over n) of some values."""
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / len(values)


def _group(members: list[Cell], x: Tensor, y: Tensor, running: RunningNorm | None) -> Group:
    values = [float(x[cell]) for cell in members]
    mean, var = moments(values)
    return Group(
        name=describe(set(members), SHAPE),
        cells=members,
        values=values,
        mean=mean,
        var=var,
        line=line_through(values, [float(y[cell]) for cell in members]),
        entered=None if running is None else entered(running, members[0]),
        kept=None if running is None else kept(running, members[0]),
    )


def entered(norm: RunningNorm, cell: Cell) -> Kept | None:
    """Return what the last batch's statistics of a cell's group were, by the norm's own account."""
    if norm.seen is None:
        return None
    return _at(cell, norm.seen.mean, norm.seen.var)


def kept(norm: RunningNorm, cell: Cell) -> Kept:
    """Return the running statistics that stand in for a cell's group."""
    return _at(cell, *norm.running_moments())


def _at(cell: Cell, mean: Tensor, var: Tensor) -> Kept:
    """Return the row of a cell's position and the column of its feature, where there are such."""
    _, token, feature = cell
    rows, cols = mean.shape
    at = (token if rows > 1 else 0, feature if cols > 1 else 0)
    return Kept(float(mean[at]), float(var[at]))


def _kind(norm: Norm, found: Sequence[Group], *, same: bool) -> Kind:
    """Return which formula the module's outputs agree with, in every group."""
    if same:
        return "identity"
    eps = float(getattr(norm, "eps", 0.0))

    def agrees(line: Line | None, center: float, square: float) -> bool:
        return line is not None and all(
            math.isclose(got, wanted, rel_tol=_CLOSE, abs_tol=_CLOSE)
            for got, wanted in ((line.center, center), (line.divisor, math.sqrt(square + eps)))
        )

    if all(agrees(group.line, group.mean, group.var) for group in found):
        return "standardize"
    if all(agrees(group.line, 0.0, group.var + group.mean**2) for group in found):
        return "scale"
    return "other"


def estimate(var: float, count: int, unbiased: bool | None) -> float:
    """Return the variance that enters the running one, from that of `count` values over n."""
    return var * count / (count - 1) if unbiased and count > 1 else var


def _update_holds(found: Sequence[Group], momentum: float | None, unbiased: bool | None) -> bool:
    """Tell whether the buffers are (1 - momentum) of 0 and 1, plus momentum of the batch's."""
    if momentum is None:
        return False
    for group in found:
        if group.entered is None or group.kept is None:
            return False
        var = estimate(group.entered.var, len(group.values), unbiased)
        wanted = (momentum * group.entered.mean, 1 - momentum + momentum * var)
        close = zip(wanted, (group.kept.mean, group.kept.var), strict=True)
        if not all(math.isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE) for a, b in close):
            return False
    return True
