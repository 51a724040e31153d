"""All that `normlab explain` shows of a norm, worked on the documents' own numbers.

The statistics of a group are taken twice: by hand, as the mean and variance of its values, and out
of the module. Within a group its output is a straight line of its input, whose zero is what was
subtracted and whose slope is what was divided by.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.config.registry import Option
from normlab.inspect.axes import (
    EXAMPLE,
    SHAPE,
    Cell,
    Cells,
    Sees,
    by_axes,
    dependence,
    describe,
    distinct,
    groups,
    in_order,
    pooled_cells,
)
from normlab.inspect.subject import (
    HALF_WAY,
    WIDTH,
    Norm,
    look,
    on_table,
    padding_moves,
    remembers,
    run,
    trained,
)
from normlab.norms.base import RunningNorm

# Two samples of three tokens of four features.
DOCUMENT = (
    ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0), (9.0, 10.0, 11.0, 12.0)),
    ((-1.0, 0.0, 1.0, 2.0), (3.0, 4.0, 5.0, 6.0), (7.0, 8.0, 9.0, 10.0)),
)
PADDED = torch.tensor([[True, True, True], [True, True, False]])
"""The real tokens where the last token of the second sample is padding."""
T = TypeVar("T")
Block = list[list[list[float]]]
_CLOSE = 1e-6


def document() -> Float[Tensor, "2 3 4"]:
    """Return the documents' tensor."""
    return torch.tensor(DOCUMENT, dtype=torch.float64)


class Line(NamedTuple):
    """The output as `(x - center) / divisor`."""

    center: float
    divisor: float


class Pair(NamedTuple):
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
    entered: Pair | None = None
    kept: Pair | None = None


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
    momentum: float | None = None
    start: Pair | None = None


@dataclass(frozen=True)
class Facts:
    """What a norm declares and keeps.

    `parameters` and `buffers` are shapes by name, with D for the width, and `sizes` how many
    numbers these are.
    """

    name: str
    description: str
    pools: list[str]
    running: bool
    incremental: bool
    parameters: dict[str, str]
    buffers: dict[str, str]
    sizes: tuple[str, str]


@dataclass(frozen=True)
class Page(Facts):
    """What there is to know about a norm.

    `pooled` are the cells that share their statistics with the example cell. `narrower` tells
    that these are fewer than the axes say, `changed` are values of the config that had to give way
    to the documents' width of 4, `padding` tells by treatment whether padding changes the output
    of real tokens. A part that the norm refuses to compute is None, and `refused` says why.
    `scheduled` tells that the norm changes during training, and `step` at which step it is shown,
    0 for the start.
    """

    target: str
    docstring: str
    settings: dict[str, Any]
    allowed: dict[str, tuple[str, ...]]
    changed: dict[str, int]
    pooled: list[Cell]
    groups: int
    narrower: bool
    sees_train: Sees | None
    sees_eval: Sees | None
    worked: Worked | None
    padding: dict[str, bool] | None
    refused: str
    scheduled: bool
    step: int

    def plain(self) -> dict[str, Any]:
        """Return the facts as plain values for JSON."""
        return {"shape": SHAPE, "example": EXAMPLE, **asdict(self)}


def facts(option: Option) -> Facts:
    """Return what an option of `configs/norm` declares and keeps."""
    shown = on_table(option)
    norm, wide = shown.make(), shown.make(2 * WIDTH)
    kept = [(dict(each.named_parameters()), _saved_buffers(each)) for each in (norm, wide)]
    learned, buffers = zip(*kept, strict=True)
    counts = [[sum(x.numel() for x in each.values()) for each in of] for of in (learned, buffers)]
    return Facts(
        name=option.name,
        description=option.description,
        pools=in_order(norm.pools),
        running=remembers(norm),
        incremental=norm.incremental,
        parameters=_shapes(*learned),
        buffers=_shapes(*buffers),
        sizes=(_size(*counts[0]), _size(*counts[1])),
    )


def explain(option: Option) -> Page:
    """Gather the facts of an option of `configs/norm`, and work it through."""
    shown = on_table(option)
    norm = shown.make()
    refusals: dict[str, None] = {}

    def try_(compute: Callable[[], T]) -> T | None:
        try:
            return compute()
        except (ValueError, RuntimeError) as error:
            refusals[str(error)] = None
            return None

    seen = try_(lambda: dependence(norm))
    if norm.phases and seen is not None and not Sees.of(seen).others:
        shown = replace(shown, step=HALF_WAY)  # it pools nothing at the start
        norm = shown.make()
        seen = try_(lambda: dependence(norm))
    seen_eval = try_(lambda: dependence(trained(norm, distinct())))
    declared = by_axes(norm.pools)
    found = declared if seen is None else pooled_cells(norm, seen)
    (pooled,) = groups(found[EXAMPLE][None, None, None])

    def moved() -> dict[str, bool]:
        x = document()
        x[~PADDED] = 0
        ways = shown.allowed.get("padding", ("",))
        made = {how: shown.make(padding=how) if how else shown.make() for how in ways}
        return {how: padding_moves(norm, x, PADDED) for how, norm in made.items()}

    return Page(
        **vars(facts(option)),
        target=f"{type(norm).__module__}.{type(norm).__name__}",
        docstring=(inspect.getdoc(type(norm)) or "").split("\nRaises:")[0].strip(),
        settings=dict(shown.settings),
        allowed=dict(shown.allowed),
        changed=dict(shown.changed),
        pooled=pooled,
        groups=len(groups(found)),
        narrower=not torch.equal(found, declared),
        sees_train=None if seen is None else Sees.of(seen),
        sees_eval=None if seen_eval is None else Sees.of(seen_eval),
        worked=try_(lambda: work(norm, found)),
        padding=try_(moved),
        refused="; ".join(refusals),
        scheduled=bool(norm.phases),
        step=shown.step,
    )


def _saved_buffers(norm: Norm) -> dict[str, Tensor]:
    """Return the buffers that a checkpoint holds."""
    return {name: tensor for name, tensor in norm.named_buffers() if name in norm.state_dict()}


def _shapes(narrow: Mapping[str, Tensor], wide: Mapping[str, Tensor]) -> dict[str, str]:
    """Write shapes by how they grow between the widths D = 4 and 8."""
    pairs = {name: zip(x.shape, wide[name].shape, strict=True) for name, x in narrow.items()}
    return {name: f"[{', '.join(_size(*pair) for pair in each)}]" for name, each in pairs.items()}


def _size(narrow: int, wide: int) -> str:
    """Return a size as `a D + b`, from its values at D = 4 and 8."""
    slope = (wide - narrow) // WIDTH
    rest = narrow - slope * WIDTH
    parts = [f"{slope} D" if slope > 1 else "D"] if slope else []
    return " + ".join([*parts, str(rest)] if rest or not parts else parts)


def work(norm: Norm, cells: Cells) -> Worked:
    """Send the documents' tensor through a new norm; `cells` has each cell's group.

    Raises what the norm raises on the tensor.
    """
    x = document()
    train = look(norm, x)
    after = trained(norm, x)
    out = run(after, x)
    found = [_group(group, x, train, after) for group in groups(cells)]
    blocks = (x.tolist(), train.tolist(), out.tolist(), torch.equal(train, out), found)
    if isinstance(norm, RunningNorm):
        start = _at(found[0].cells[0], *norm.running_moments())
        return Worked(*blocks, norm.momentum, start)
    return Worked(*blocks)


def _group(cells: list[Cell], x: Tensor, y: Tensor, after: Norm) -> Group:
    values = [float(x[cell]) for cell in cells]
    mean = math.fsum(values) / len(values)
    var = math.fsum((value - mean) ** 2 for value in values) / len(values)
    line = line_through(values, [float(y[cell]) for cell in cells])
    found = Group(describe(cells), cells, values, mean, var, line)
    if isinstance(after, RunningNorm) and after.seen is not None:
        tables = after.estimates(after.seen), after.running_moments()
        entered, kept = (_at(cells[0], *each) for each in tables)
        return replace(found, entered=entered, kept=kept)
    return found


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
