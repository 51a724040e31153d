"""The documents' own numbers through the real module: their tensor, its padding, and the 999.

The statistics of a group are taken twice. Once by hand, as the mean and variance of its values.
And once out of the module: within a group its output is a straight line of its input, whose zero
is what was subtracted and whose slope is what was divided by. Where the two agree the formula is
known; where they do not, nothing is claimed.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from normlab.inspect.axes import SHAPE, Cell, Shape, cells, describe, groups, pooled
from normlab.inspect.subject import (
    Norm,
    OnTable,
    last_moments,
    look,
    remembers,
    run,
    running,
    trained,
)

# Two samples of three tokens of four features.
DOCUMENT = (
    ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0), (9.0, 10.0, 11.0, 12.0)),
    ((-1.0, 0.0, 1.0, 2.0), (3.0, 4.0, 5.0, 6.0), (7.0, 8.0, 9.0, 10.0)),
)
SENTENCE = ((10.0, 20.0, 999.0, -5.0), (0.1, 0.2, 0.1, 0.1), (5.0, 5.0, 5.0, 5.0))
FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)
Block = list[list[list[float]]]
Kind = Literal["identity", "standardize", "scale", "other"]
_CLOSE = 1e-6
_NEGLIGIBLE = 1e-9
_PAD = (1, 2)  # the last token of the second sample


def document() -> Tensor:
    """Return the documents' tensor, `[2, 3, 4]`."""
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

    `entered` is what the module took of them for its running statistics, `kept` what these became.
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
    keeps = remembers(norm)
    momentum, unbiased = (getattr(norm, name, None) for name in ("momentum", "unbiased"))
    return Worked(
        shape=SHAPE,
        x=x.tolist(),
        train=train.tolist(),
        eval=out.tolist(),
        same_in_eval=torch.equal(train, out),
        groups=found,
        kind="identity" if torch.equal(x, train) else _kind(norm, found),
        momentum=momentum if keeps else None,
        unbiased=unbiased if keeps else None,
        update_holds=_update_holds(found, momentum, unbiased) if keeps else None,
        start=kept(norm, found[0].cells[0]),
    )


def _group(members: list[Cell], x: Tensor, y: Tensor, after: Norm) -> Group:
    values = [float(x[cell]) for cell in members]
    mean = math.fsum(values) / len(values)
    seen = last_moments(after)  # by the norm's own account
    return Group(
        name=describe(set(members)),
        cells=members,
        values=values,
        mean=mean,
        var=math.fsum((value - mean) ** 2 for value in values) / len(values),
        line=line_through(values, [float(y[cell]) for cell in members]),
        entered=None if seen is None else _at(members[0], seen.mean, seen.var),
        kept=kept(after, members[0]),
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


def kept(norm: Norm, cell: Cell) -> Pair | None:
    """Return the running statistics that stand in for a cell's group."""
    found = running(norm)
    return None if found is None else _at(cell, *found)


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
        wanted = (center, math.sqrt(square + eps))
        return line is not None and _close((line.center, line.divisor), wanted)

    if all(agrees(group.line, group.mean, group.var) for group in found):
        return "standardize"
    if all(agrees(group.line, 0.0, group.var + group.mean**2) for group in found):
        return "scale"
    return "other"


def _close(found: Sequence[float], wanted: Sequence[float]) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(math.isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE) for a, b in pairs)


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
        if not _close(wanted, (group.kept.mean, group.kept.var)):
            return False
    return True


@dataclass(frozen=True)
class Treatment:
    """One way of treating padding, and what the module does under it.

    `used` are the statistics of the group that is shown, `out` the output of its first real value,
    `five` the statistics of 1 2 3 4 5 and five zeros of padding. `moves` tells whether the output
    of any real token changes when other values stand at the padding, or when two positions and a
    sample of nothing but padding are added.
    """

    name: str | None
    used: Pair | None
    out: float
    five: Pair | None
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

    Sample 2 loses its last token, and zeros stand there. Raises what the norm raises on it.
    """
    x = document()
    valid = torch.ones(x.shape[:2], dtype=torch.bool)
    x[_PAD], valid[_PAD] = 0, False
    group = _shown(subject.make(), valid)
    real = [cell for cell in group if valid[cell[:2]]]
    treatments = []
    for name in subject.alternatives("padding") or (None,):
        norm = subject.make() if name is None else subject.make(padding=name)
        used, y = _used(norm, x, valid, real)
        treatments.append(
            Treatment(name, used, float(y[real[0]]), _five(norm), _moves(norm, x, valid))
        )
    return Padding(
        group=describe(set(group)),
        real=[float(x[cell]) for cell in real],
        padded=[float(x[cell]) for cell in group if not valid[cell[:2]]],
        treatments=treatments,
    )


def _shown(norm: Norm, valid: Tensor) -> list[Cell]:
    """Return the first group that holds real and padded tokens; the first of all if none does."""
    found = groups({cell: pooled(cell, norm.pools) for cell in cells()})
    mixed = (group for group in found if len({bool(valid[cell[:2]]) for cell in group}) == 2)
    return sorted(next(mixed, found[0]))


def _used(norm: Norm, x: Tensor, valid: Tensor, real: Sequence[Cell]) -> tuple[Pair | None, Tensor]:
    """Return the mean and variance that the group of some real cells is normalized by, and all."""
    norm = copy.deepcopy(norm)
    y = run(norm, x, valid)
    if (seen := last_moments(norm)) is not None:
        mean, var = (table.expand(x.shape)[real[0]] for table in seen[:2])
        return Pair(float(mean), float(var)), y
    line = line_through([float(x[c]) for c in real], [float(y[c]) for c in real])
    if line is None:
        return None, y
    var = max(line.divisor**2 - float(getattr(norm, "eps", 0.0)), 0.0)
    return Pair(line.center, var), y


def _moves(norm: Norm, x: Tensor, valid: Tensor) -> bool:
    before = look(norm, x, valid)[valid]
    other = x.clone()
    other[~valid] = 100.0
    more, still = F.pad(x, (0, 0, 0, 2, 0, 1)), F.pad(valid, (0, 2, 0, 1))
    after = (look(norm, other, valid)[valid], look(norm, more, still)[still])
    return any(not torch.allclose(before, y, rtol=0, atol=_NEGLIGIBLE) for y in after)


def _five(norm: Norm) -> Pair | None:
    """Return the statistics of 1 2 3 4 5 and five padded zeros, along an axis of tokens."""
    if norm.pools.isdisjoint({"batch", "position"}):
        return None
    values = torch.tensor([*FIVE, *[0.0] * len(FIVE)], dtype=torch.float64)
    row = (1, -1) if "position" in norm.pools else (-1, 1)
    # Every feature the same: pooling features as well then leaves mean and variance as they are.
    x = values.reshape(row).unsqueeze(-1).expand(-1, -1, SHAPE[2]).contiguous()
    valid = torch.tensor([True] * len(FIVE) + [False] * len(FIVE)).reshape(row)
    real = [(int(s), int(t), 0) for s, t in valid.nonzero().tolist()]
    return _used(norm, x, valid, real)[0]


def attend(y: Float[Tensor, "N D"]) -> Float[Tensor, "N N"]:
    """Return softmax(y y' / sqrt(D)), where each token looks."""
    return (y @ y.T / math.sqrt(y.shape[-1])).softmax(-1)


def slope(weights: Float[Tensor, "*N M"]) -> Float[Tensor, "*N"]:
    """Return 1 - sum p^2 of each row, which is 0 where one weight is 1."""
    return 1 - weights.square().sum(-1)


def through(norm: Norm) -> dict[str, Any]:
    """Return what a norm makes of the sentence with the 999, and where its tokens then look.

    The sentence is alone in its batch and attends to itself, with the vectors as queries and keys,
    so that the norm is all that matters. By row: the largest weight and the slope.
    """
    y = run(norm.double(), torch.tensor([SENTENCE], dtype=torch.float64))[0]
    weights = attend(y)
    return {
        "values": y.tolist(),
        "largest_logit": float((y @ y.T).abs().max() / math.sqrt(y.shape[-1])),
        "largest_weight": weights.amax(-1).tolist(),
        "slope": slope(weights).tolist(),
    }
