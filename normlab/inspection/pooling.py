"""What a norm pools over, found by experiment, and what it computes.

A block has samples x tokens x features. A cell is one of its values, `(sample, token, feature)`,
indexed from 0 and displayed from 1. `Cells` says, per output cell, which input cells it depends on.

The statistics of a group are computed twice: directly, as the mean and variance of its values, and
from the module's output. Within a group the output is a straight line in the input: the input
at which it is 0 is the subtracted center, and the inverse of its slope is the divisor.
"""

import inspect
import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple, get_args, get_type_hints

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.config.registry import Option
from normlab.findings.finding import NO_TABLE, AnswerTable
from normlab.inspection.bare_norm import (
    HALF_WAY,
    LONG_RUN,
    WIDTH,
    OnTable,
    affected,
    look,
    normal,
    on_table,
    padding_moves,
    run,
    trained,
)
from normlab.norms.axes import AXES, axes_in_words
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.running import RunningNorm

Cell = tuple[int, int, int]
Cells = Bool[Tensor, "S T F s t f"]

SEEN = {
    "its token's features": "feature",
    "earlier tokens": "position",
    "later tokens": "position",
    "other samples": "batch",
}
"""What an output may depend on, and the axis that the norm then pools over."""
NAMES = ("sample", "token", "feature")
SHAPE = (2, 3, 4)
DOCUMENT = (
    ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0), (9.0, 10.0, 11.0, 12.0)),
    ((-1.0, 0.0, 1.0, 2.0), (3.0, 4.0, 5.0, 6.0), (7.0, 8.0, 9.0, 10.0)),
)
PADDED = torch.tensor([[True, True, True], [True, True, False]])
"""A mask of real tokens in which the last token of the second sample is padding."""
WIDE = 512  # the width at which parameters and buffers are counted
_CLOSE = 1e-6


def document() -> Float[Tensor, "2 3 4"]:
    """Return the articles' example tensor."""
    return torch.tensor(DOCUMENT, dtype=torch.float64)


def by_axes(pools: Set[str]) -> Cells:
    """Return which cells share statistics: cells that differ only along the pooled axes."""
    sizes = zip(AXES, SHAPE, strict=True)
    same = [torch.ones(n, n) if axis in pools else torch.eye(n) for axis, n in sizes]
    return torch.einsum("Ss,Tt,Ff->STFstf", *same).bool()


def groups(cells: Cells) -> list[list[Cell]]:
    """Return the distinct groups, ordered by first cell, each as a sorted list of cells."""
    rows = [tuple(map(tuple, row.nonzero().tolist())) for row in cells.flatten(0, 2)]
    return [list(row) for row in dict.fromkeys(rows)]


def describe(group: Iterable[Cell]) -> str:
    """Say what a group's cells have in common, such as `sample 1, token 1` or `features 1-2`."""
    parts = []
    for name, size, numbers in zip(NAMES, SHAPE, zip(*group, strict=True), strict=True):
        first, last = min(numbers) + 1, max(numbers) + 1
        if first == last:
            parts.append(f"{name} {first}")
        elif len(set(numbers)) < size:
            parts.append(f"{name}s {first}-{last}")
    return ", ".join(parts) or "the whole block"


def dependence(norm: Norm, *, features: int | None = None) -> Cells:
    """Return the input cells that each output cell depends on, even in its last bit.

    Inputs are changed one by one, without relying on what the norm declares, so the result also
    shows how group norm splits features. If given, only the first `features` are changed.
    """
    x = normal(*SHAPE[:2], norm.dim, seed=7)
    before = look(norm, x)
    cells = torch.zeros(*x.shape, *x.shape, dtype=torch.bool)
    for source in product(*map(range, (*SHAPE[:2], features or norm.dim))):
        cells[(..., *source)] = affected(norm, x, source, before)
    return cells


def pooled_cells(norm: Norm, dependences: Cells) -> Cells:
    """Return which cells of each cell's declared group actually affect its output.

    A cell that no other cell affects, because the norm uses running statistics, keeps its group.
    """
    group = by_axes(norm.pools)
    part = group & (dependences | by_axes(frozenset()))
    alone = part.sum((3, 4, 5), keepdim=True) <= 1
    return torch.where(alone, group, part)


def sees(cells: Cells) -> list[str]:
    """Return what outputs depend on besides their own value, as keys of `SEEN`."""
    sample, token, feature, from_sample, from_token, from_feature = cells.nonzero().T
    same = sample == from_sample
    moves = (
        same & (token == from_token) & (feature != from_feature),
        same & (from_token < token),
        same & (from_token > token),
        ~same,
    )
    return [name for name, each in zip(SEEN, moves, strict=True) if each.any()]


def sees_in_words(cells: Cells) -> str:
    """Return the result of `sees` as text."""
    return ", ".join(sees(cells)) or "only its own value"


class Line(NamedTuple):
    """The straight line `(x - center) / divisor`."""

    center: float
    divisor: float


@dataclass(frozen=True)
class Group:
    """Cells that share statistics, with their values and the values' mean and variance.

    `line` is what a new norm computes from the values in training, `line_in_eval` what it computes
    in eval after this one batch; None if the output is not a straight line.
    """

    name: str
    cells: list[Cell]
    values: list[float]
    mean: float
    var: float
    line: Line | None
    line_in_eval: Line | None


def work(norm: Norm, cells: Cells) -> list[Group]:
    """Run the articles' tensor through a new norm; return its groups, without duplicates."""
    x = document()
    outputs = look(norm, x), run(trained(norm, x), x)
    worked = []
    for group in groups(cells):
        values, *ys = ([float(table[cell]) for cell in group] for table in (x, *outputs))
        mean = math.fsum(values) / len(values)
        var = math.fsum((value - mean) ** 2 for value in values) / len(values)
        lines = (line_through(values, y) for y in ys)
        worked.append(Group(describe(group), group, values, mean, var, *lines))
    return worked


def line_through(xs: Sequence[float], ys: Sequence[float]) -> Line | None:
    """Return the straight line through all points, or None if they are not on one."""
    low, high = xs.index(min(xs)), xs.index(max(xs))
    if xs[low] == xs[high] or ys[low] == ys[high]:
        return None
    divisor = (xs[high] - xs[low]) / (ys[high] - ys[low])
    center = xs[low] - ys[low] * divisor
    on_it = [(x - center) / divisor for x in xs]
    fits = all(math.isclose(a, b, abs_tol=_CLOSE) for a, b in zip(on_it, ys, strict=True))
    return Line(center, divisor) if fits else None


class Section(NamedTuple):
    """A section of the output: a title, a paragraph, the lines of a drawing, and a table."""

    title: str
    text: str
    drawing: Sequence[str] = ()
    table: AnswerTable = NO_TABLE


class Explanation(NamedTuple):
    """The sections about a norm; `follows` summarizes what it depends on and stores, by name."""

    name: str
    sections: list[Section]
    follows: dict[str, str]


def overview(shown: Sequence[Option]) -> Section:
    """Return a table of norms with one row per option of `configs/norm`."""
    norms = {option.name: make_norm(option.name, WIDE) for option in shown}
    rows = [
        (
            *(name, axes_in_words(norm.pools), "yes" if isinstance(norm, RunningNorm) else "no"),
            *(
                _stepwise(norm),
                *(sum(x.numel() for x in tensors.values()) for tensors in _stored(norm)),
            ),
        )
        for name, norm in sorted(norms.items(), key=lambda item: len(item[1].pools))
    ]
    columns = ("norm", "pools over", "running", "stepwise", "parameters", "buffers")
    text = (
        "In a block of samples x tokens x features, values that are pooled share one mean and one "
        "variance. running: keeps statistics for eval; stepwise: can decode one token at a time; "
        f"sizes are for {WIDE} features."
    )
    return Section("A norm is a set of axes to pool over", text, table=AnswerTable(columns, rows))


def _stepwise(norm: Norm) -> str:
    return ("in eval" if isinstance(norm, RunningNorm) else "yes") if norm.incremental else "no"


def _stored(norm: Norm) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return a norm's parameters and the buffers that it saves, by name."""
    buffers = {name: x for name, x in norm.named_buffers() if name in norm.state_dict()}
    return dict(norm.named_parameters()), buffers


def explanation(option: Option) -> Explanation:
    """Explain an option of `configs/norm` on the articles' tensor.

    Errors that the norm raises on that tensor propagate.
    """
    shown = on_table(option)
    norm = shown.make()
    dependences = dependence(norm)
    if norm.ramps and "other samples" not in sees(dependences):  # it does not pool at first
        shown = replace(shown, step=HALF_WAY)
        norm = shown.make()
        dependences = dependence(norm)
    cells = pooled_cells(norm, dependences)
    groups = work(norm, cells)
    columns = ("group", "its values", "mean", "var", "in training", "then in eval")
    rows = [
        (g.name, _row(g.values), g.mean, g.var, _line(g.line), _line(g.line_in_eval))
        for g in (groups if norm.pools else [])
    ]
    title, text = f"{option.name}: {option.description}", _pooling(shown, norm, cells, groups)
    sections = [
        Section(title, text, _drawing(groups[0])),
        Section("What it computes", _formula(norm), table=AnswerTable(columns, rows)),
    ]
    return Explanation(option.name, sections, _follows(shown, norm, dependences))


def _pooling(shown: OnTable, norm: Norm, cells: Cells, groups: Sequence[Group]) -> str:
    text = "Pools over nothing: there are no statistics, and values do not affect each other"
    if norm.pools:
        size, number = len(groups[0].cells), len(groups)
        cut = f"{number} groups of {size} values" if number > 1 else f"all {size} values"
        text = f"Pools over {axes_in_words(norm.pools)}: {cut}"
    narrower = not torch.equal(cells, by_axes(norm.pools))
    text += ", smaller groups than the axes alone would give." if narrower else "."
    for key, value in shown.changed.items():
        text += f" {key}={shown.settings[key]} does not fit a width of {WIDTH}, so this shows "
        text += f"{key}={value}."
    if norm.ramps:
        text += f" It changes during training: shown at step {shown.step} of {LONG_RUN:,}."
    return f"{text} Values in brackets share their statistics with the value marked *."


def _formula(norm: Norm) -> str:
    """Return the first paragraph of the docstring, and how weight and bias are applied."""
    text = " ".join((inspect.getdoc(type(norm)) or "").partition("\n\n")[0].split())
    learned = dict(norm.named_parameters())
    if "weight" in learned:
        names = "The factor `weight` and the shift `bias` are" if "bias" in learned else ""
        values = "one value per feature" if norm.weight.ndim else "one value"
        text += f" {names or 'The factor `weight` is'} learned, {values}."
    return f"{text} ({type(norm).__module__}.{type(norm).__name__})"


def _drawing(group: Group) -> list[str]:
    """Draw the block, one grid per sample, with the group's cells in brackets, the first with *."""
    samples, tokens, features = map(range, SHAPE)

    def line(label: str, parts: Sequence[str]) -> str:
        return (label.ljust(9) + "   ".join(parts)).rstrip()

    def cell(*place: int) -> str:
        sample, token, feature = place
        value = f"{DOCUMENT[sample][token][feature]:g}"
        if place in group.cells:
            value = f"[{value}]" if any(place) else f"[*{value}]"
        return value.center(5)

    rows = {f"token {t + 1}": [[cell(s, t, f) for f in features] for s in samples] for t in tokens}
    rows = {"feature": [[f"{f + 1}".center(5) for f in features] for _ in samples], **rows}
    return [
        line("", [f"sample {s + 1}".center(20) for s in samples]),
        *(line(label, ["".join(cells) for cells in row]) for label, row in rows.items()),
    ]


def _row(values: Iterable[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _line(line: Line | None) -> str:
    """Format a line such as `(x - 2.50) / 1.12`."""
    if line is None:
        return "no straight line of x"
    return f"(x {'+' if line.center < 0 else '-'} {abs(line.center):.2f}) / {line.divisor:.2f}"


def _follows(shown: OnTable, norm: Norm, dependences: Cells) -> dict[str, str]:
    ways = [""]
    if "padding" in shown.settings:
        ways = get_args(get_type_hints(type(norm).__init__)["padding"])
    treated = {how or "any": shown.make(padding=how) if how else norm for how in ways}
    moving = [how for how, each in treated.items() if padding_moves(each, document(), PADDED)]
    full_size = make_norm(shown.option.name, WIDE)
    parameters, buffers = (
        ", ".join(f"{name} {list(x.shape)}" for name, x in stored.items())
        for stored in _stored(full_size)
    )
    settings = [f"{key}={str(value).lower()}" for key, value in shown.settings.items()]
    return {
        "pools over": axes_in_words(norm.pools),
        "in training it sees": sees_in_words(dependences),
        "in eval it sees": sees_in_words(dependence(trained(norm, normal(*SHAPE, seed=7)))),
        "one at a time": _stepwise(norm),
        "padding counts": f"with padding={', '.join(moving)}" if moving else "no",
        "parameters": parameters or "none",
        "buffers": buffers or "none",
        "settings": ", ".join(settings) or "none",
    }


def compared(explanations: Sequence[Explanation]) -> Section:
    """Return a table of what norms depend on and store, with one column per norm."""
    columns = ("", *(each.name for each in explanations))
    names = explanations[0].follows
    rows = [(name, *(each.follows[name] for each in explanations)) for name in names]
    text = "What an output depends on besides its own value, and what the norm stores."
    return Section("Consequences", text, table=AnswerTable(columns, rows))
