"""What a norm pools over, found by experiment, and what it computes on the articles' numbers.

A block has samples x tokens x features. Which input cells an output cell depends on is a boolean
tensor, output cells first. A cell is `(sample, token, feature)`, counted from 0, shown from 1.

The statistics of a group are computed twice: by hand, as the mean and variance of its values, and
from the module's output. Within a group the output is a straight line in the input: its zero is
the value that was subtracted, and the inverse of its slope the divisor.
"""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args, get_type_hints

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.config.registry import Option
from normlab.inspect.subject import (
    AXES,
    HALF_WAY,
    look,
    normal,
    on_table,
    padding_moves,
    run,
    trained,
)
from normlab.norms.base import Norm, RunningNorm
from normlab.train.build import make_norm

Cell = tuple[int, int, int]
Cells = Bool[Tensor, "S T F s t f"]
Block = list[list[list[float]]]

SEEN = {
    "its token's features": "feature",
    "earlier tokens": "position",
    "later tokens": "position",
    "other samples": "batch",
}
"""What an output may depend on, and the axis along which it lies."""
NAMES = ("sample", "token", "feature")
SHAPE = (2, 3, 4)
DOCUMENT = (
    ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0), (9.0, 10.0, 11.0, 12.0)),
    ((-1.0, 0.0, 1.0, 2.0), (3.0, 4.0, 5.0, 6.0), (7.0, 8.0, 9.0, 10.0)),
)
PADDED = torch.tensor([[True, True, True], [True, True, False]])
"""The real tokens when the last token of the second sample is padding."""
WIDE = 512  # the width at which parameters and buffers are counted
_CHANGES = ((1.0, 0.7), (-40.0, 0.0), (0.0, 0.0))  # factor and summand
_CLOSE = 1e-6


def document() -> Float[Tensor, "2 3 4"]:
    """Return the articles' example tensor."""
    return torch.tensor(DOCUMENT, dtype=torch.float64)


# Cells that share statistics ----------------------------------------------------------------------


def by_axes(pools: Set[str]) -> Cells:
    """Return which cells share a statistic: those that differ only along the pooled axes."""
    sizes = zip(AXES, SHAPE, strict=True)
    same = [torch.ones(n, n) if axis in pools else torch.eye(n) for axis, n in sizes]
    return torch.einsum("Ss,Tt,Ff->STFstf", *same).bool()


def groups(cells: Cells) -> list[list[Cell]]:
    """List the distinct groups by their first cells; the cells of a group are in order."""
    rows = [tuple(map(tuple, row.nonzero().tolist())) for row in cells.flatten(0, 2)]
    return [list(row) for row in dict.fromkeys(rows)]


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
        first, last = min(numbers) + 1, max(numbers) + 1
        if first == last:
            parts.append(f"{name} {first}")
        elif len(set(numbers)) < size:
            parts.append(f"{name}s {first}-{last}")
    return ", ".join(parts) or "the whole block"


def dependence(norm: Norm, *, features: int | None = None) -> Cells:
    """Return the input cells that each output cell depends on, bit for bit.

    Inputs are changed one by one and nothing that the norm declares is trusted, so it also shows
    how group norm splits a token's features. Only the first `features` are changed, if given.
    """
    x = normal(*SHAPE[:2], norm.dim, seed=7)
    before = look(norm, x)
    found = torch.zeros(*x.shape, *x.shape, dtype=torch.bool)
    for source in product(*map(range, (*SHAPE[:2], features or norm.dim))):
        for factor, summand in _CHANGES:
            other = x.clone()
            other[source] = other[source] * factor + summand
            found[(..., *source)] |= look(norm, other) != before
    return found


def pooled_cells(norm: Norm, seen: Cells) -> Cells:
    """Return the cells of each cell's declared group that really enter its statistics.

    A norm that uses no other cell, because it has running statistics, keeps the declared group.
    """
    group = by_axes(norm.pools)
    part = group & (seen | by_axes(frozenset()))
    alone = part.sum((3, 4, 5), keepdim=True) <= 1
    return torch.where(alone, group, part)


def sees(found: Cells) -> list[str]:
    """Return what an output depends on besides its own value, in the words of `SEEN`."""
    sample, token, feature, from_sample, from_token, from_feature = found.nonzero().T
    same = sample == from_sample
    moves = (
        same & (token == from_token) & (feature != from_feature),
        same & (from_token < token),
        same & (from_token > token),
        ~same,
    )
    return [name for name, each in zip(SEEN, moves, strict=True) if each.any()]


def sees_in_words(found: Cells) -> str:
    """Return what `sees` finds as text."""
    return ", ".join(sees(found)) or "its own value alone"


# The articles' example, worked through ------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Cells that share statistics: their mean and variance, and the module's output for them.

    `line` is the center and divisor of the output `(x - center) / divisor`; None if it is not a
    straight line. `entered` is the estimate of mean and variance that entered the running
    statistics, `kept` their values afterwards; a norm of mean squares has mean 0.
    """

    name: str
    cells: list[Cell]
    values: list[float]
    mean: float
    var: float
    line: tuple[float, float] | None
    entered: tuple[float, float] | None = None
    kept: tuple[float, float] | None = None


def work(norm: Norm, cells: Cells) -> list[Group]:
    """Run the articles' tensor through a new norm; `cells` has each cell's group."""
    x = document()
    train, after = look(norm, x), trained(norm, x)
    return [_group(group, x, train, after) for group in groups(cells)]


def _group(cells: list[Cell], x: Tensor, y: Tensor, after: Norm) -> Group:
    values = [float(x[cell]) for cell in cells]
    mean = math.fsum(values) / len(values)
    var = math.fsum((value - mean) ** 2 for value in values) / len(values)
    line = line_through(values, [float(y[cell]) for cell in cells])
    found = Group(describe(cells), cells, values, mean, var, line)
    if not isinstance(after, RunningNorm) or after.seen is None:
        return found
    _, token, feature = cells[0]

    def at(mean: Tensor, var: Tensor) -> tuple[float, float]:
        rows, columns = mean.shape  # one row per position and column per feature, or one for all
        place = (token if rows > 1 else 0, feature if columns > 1 else 0)
        return float(mean[place]), float(var[place])

    entered, kept = at(*after.estimates(after.seen)), at(*after.running_moments())
    return replace(found, entered=entered, kept=kept)


def line_through(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float] | None:
    """Return center and divisor of the straight line through all points; None if there is none."""
    low, high = xs.index(min(xs)), xs.index(max(xs))
    if xs[low] == xs[high] or ys[low] == ys[high]:
        return None
    divisor = (xs[high] - xs[low]) / (ys[high] - ys[low])
    center = xs[low] - ys[low] * divisor
    on_it = [(x - center) / divisor for x in xs]
    fits = all(math.isclose(a, b, abs_tol=_CLOSE) for a, b in zip(on_it, ys, strict=True))
    return (center, divisor) if fits else None


# The content of `normlab explain` -----------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """What a norm declares and stores; `parameters` and `buffers` are shapes at a width of 512."""

    name: str
    description: str
    pools: list[str]
    running: bool
    incremental: bool
    parameters: dict[str, list[int]]
    buffers: dict[str, list[int]]


@dataclass(frozen=True)
class Page(Facts):
    """All facts that `normlab explain` shows about a norm.

    `changed` are config values replaced to fit the width of 4. `narrower` says that groups have
    fewer cells than the axes imply. `x` is the articles' tensor, `train` and `eval` are the outputs
    for it. `padding` says per treatment whether padding changes real tokens. `step` is the step at
    which a norm that changes during training is shown, 0 for the start; None for other norms.
    """

    module: str
    docstring: str
    settings: Mapping[str, Any]
    changed: Mapping[str, int]
    narrower: bool
    groups: list[Group]
    sees_train: str
    sees_eval: str
    x: Block
    train: Block
    eval: Block
    padding: dict[str, bool]
    step: int | None


def facts(option: Option) -> Facts:
    """Return what an option of `configs/norm` declares and stores."""
    norm = make_norm(option.name, WIDE)
    return Facts(
        name=option.name,
        description=option.description,
        pools=in_order(norm.pools),
        running=isinstance(norm, RunningNorm),
        incremental=norm.incremental,
        parameters={name: list(x.shape) for name, x in norm.named_parameters()},
        buffers={n: list(x.shape) for n, x in norm.named_buffers() if n in norm.state_dict()},
    )


def explain(option: Option) -> Page:
    """Return all facts about an option of `configs/norm`, with its worked example.

    Raises the norm's own error if it fails on the articles' tensor.
    """
    shown, x = on_table(option), document()
    norm = shown.make()
    seen = dependence(norm)
    if norm.phases and "other samples" not in sees(seen):  # it pools nothing at the start
        shown = replace(shown, step=HALF_WAY)
        norm = shown.make()
        seen = dependence(norm)
    found = pooled_cells(norm, seen)
    ways = [""]
    if "padding" in shown.settings:
        ways = get_args(get_type_hints(type(norm).__init__)["padding"])
    padding = {how: shown.make(padding=how) if how else norm for how in ways}
    return Page(
        **vars(facts(option)),
        module=f"{type(norm).__module__}.{type(norm).__name__}",
        docstring=" ".join((inspect.getdoc(type(norm)) or "").partition("\n\n")[0].split()),
        settings=shown.settings,
        changed=shown.changed,
        narrower=not torch.equal(found, by_axes(norm.pools)),
        groups=work(norm, found),
        sees_train=sees_in_words(seen),
        sees_eval=sees_in_words(dependence(trained(norm, normal(*SHAPE, seed=7)))),
        x=x.tolist(),
        train=look(norm, x).tolist(),
        eval=run(trained(norm, x), x).tolist(),
        padding={how: padding_moves(each, x, PADDED) for how, each in padding.items()},
        step=shown.step if norm.phases else None,
    )
