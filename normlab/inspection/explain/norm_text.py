"""`normlab explain NORM`: describes what a norm pools and computes, using its worked example."""

from collections.abc import Iterable, Sequence

import torch

from normlab.config.registry import Option
from normlab.docstrings import summary
from normlab.findings.finding import AnswerTable
from normlab.inspection.examples.articles import SHAPE, TENSOR, TENSOR_WIDTH
from normlab.inspection.explain.section import OptionExplanation, Section
from normlab.inspection.norm.example_norm import LONG_RUN
from normlab.inspection.norm.pooling import CellIndex, Influence, by_axes
from normlab.inspection.norm.worked_example import (
    FULL_WIDTH,
    FittedLine,
    WorkedExample,
    WorkedGroup,
    stored,
    worked_example,
)
from normlab.norms.axes import axes_in_words
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.running import RunningNorm

_OF_VALUES = (
    " mean and var are those of the group's values, whatever the norm uses; in eval is after "
    "training on this batch alone."
)
NAMES = ("sample", "token", "feature")
_IN_WORDS: dict[Influence, str] = {
    "own token": "its token's features",
    "earlier tokens": "earlier tokens",
    "later tokens": "later tokens",
    "other samples": "other samples",
}


def overview(shown: Sequence[Option]) -> Section:
    """Return a table with one row for each option of `configs/norm`."""
    norms = {option.name: make_norm(option.name, FULL_WIDTH) for option in shown}
    rows = [
        (
            name,
            axes_in_words(norm.pools),
            "yes" if isinstance(norm, RunningNorm) else "no",
            _stepwise(norm),
            *(sum(x.numel() for x in tensors.values()) for tensors in stored(norm)),
        )
        for name, norm in sorted(norms.items(), key=lambda item: len(item[1].pools))
    ]
    columns = ("norm", "pools over", "running", "stepwise", "parameters", "buffers")
    text = (
        "In a block of samples x tokens x features, values that are pooled share one mean and one "
        "variance. running: keeps statistics for eval; stepwise: can decode one token at a time; "
        f"sizes are for {FULL_WIDTH} features."
    )
    return Section("A norm is a set of axes to pool over", text, table=AnswerTable(columns, rows))


def explanation(option: Option) -> OptionExplanation:
    """Explain an option of `configs/norm`, with the articles' tensor as the example.

    Errors that the norm raises for this tensor propagate.
    """
    example = worked_example(option)
    groups = example.groups if example.norm.pools else []
    columns = ("group", "its values", "mean", "var", "in training", "in eval")
    rows = [
        (
            group_name(g.cells),
            " ".join(f"{value:g}" for value in g.values),
            g.mean,
            g.var,
            _line(g.line),
            _line(g.line_in_eval),
        )
        for g in groups
    ]
    title = f"{option.name}: {option.description}"
    text = f"{_formula(example.norm)}{_OF_VALUES if groups else ''}"
    sections = [
        Section(title, _pooling(example), _drawing(example.groups[0])),
        Section("What it computes", text, table=AnswerTable(columns, rows)),
    ]
    return OptionExplanation(option.name, sections, _properties(example))


def compared(explanations: Sequence[OptionExplanation]) -> Section:
    """Return a table of what norms depend on and what they store, with one column per norm."""
    columns = ("", *(each.name for each in explanations))
    names = explanations[0].properties
    rows = [(name, *(each.properties[name] for each in explanations)) for name in names]
    text = "What an output depends on, and what the norm stores."
    return Section("Consequences", text, table=AnswerTable(columns, rows))


def influences_in_words(influences: Iterable[Influence]) -> str:
    """Return the values that an output depends on, such as `earlier tokens, other samples`."""
    return ", ".join(_IN_WORDS[influence] for influence in influences) or "only its own value"


def group_name(group: Iterable[CellIndex]) -> str:
    """Return where a group's cells are, such as `sample 1, features 1-2` or `features 1 and 3`."""
    parts = []
    for name, size, indices in zip(NAMES, SHAPE, zip(*group, strict=True), strict=True):
        first, *more = numbers = sorted({index + 1 for index in indices})
        if not more:
            parts.append(f"{name} {first}")
        elif numbers == [*range(first, more[-1] + 1)]:
            parts += [f"{name}s {first}-{more[-1]}"] * (len(numbers) < size)
        else:
            parts.append(f"{name}s {', '.join(map(str, numbers[:-1]))} and {more[-1]}")
    return ", ".join(parts) or "the whole block"


def _stepwise(norm: Norm) -> str:
    return ("in eval" if isinstance(norm, RunningNorm) else "yes") if norm.incremental else "no"


def _pooling(example: WorkedExample) -> str:
    shown, norm, groups = example.shown, example.norm, example.groups
    text = "Pools over nothing: there are no statistics, and values do not affect each other"
    if norm.pools:
        sizes, number = {len(group.cells) for group in groups}, len(groups)
        size = f"{max(sizes)} values" if len(sizes) == 1 else "different sizes"
        cut = f"{number} groups of {size}" if number > 1 else f"all {size}"
        text = f"Pools over {axes_in_words(norm.pools)}: {cut}"
    narrower = not torch.equal(example.cells, by_axes(norm.pools))
    text += ", smaller groups than the axes alone would give." if narrower else "."
    for key, value in shown.changed.items():
        text += (
            f" {key}={shown.settings[key]} does not fit a width of {TENSOR_WIDTH}, so this shows "
        )
        text += f"{key}={value}."
    if norm.ramps:
        at = f"at step {shown.step} of {LONG_RUN:,}" if shown.step else "as at the start"
        text += f" It changes during training and is shown {at}."
    return f"{text} Values in brackets share their statistics with the value marked *."


def _formula(norm: Norm) -> str:
    """Return the summary of the norm's class, and which of weight and bias are learned."""
    text = summary(type(norm))
    learned = dict(norm.named_parameters())
    if "weight" in learned:
        names = "The factor `weight` and the shift `bias` are" if "bias" in learned else ""
        values = "one value per feature" if norm.weight.ndim else "one value"
        text += f" {names or 'The factor `weight` is'} learned, {values}."
    return f"{text} ({type(norm).__module__}.{type(norm).__name__})"


def _drawing(group: WorkedGroup) -> list[str]:
    """Return a drawing of the block, with the group's cells in brackets and its first cell as *."""
    samples, tokens, features = map(range, SHAPE)

    def line(label: str, parts: Sequence[str]) -> str:
        return (label.ljust(9) + "   ".join(parts)).rstrip()

    def cell(*place: int) -> str:
        sample, token, feature = place
        value = f"{TENSOR[sample][token][feature]:g}"
        if place in group.cells:
            value = f"[{value}]" if any(place) else f"[*{value}]"
        return value.center(5)

    rows = {f"token {t + 1}": [[cell(s, t, f) for f in features] for s in samples] for t in tokens}
    rows = {"feature": [[f"{f + 1}".center(5) for f in features] for _ in samples], **rows}
    return [
        line("", [f"sample {s + 1}".center(20) for s in samples]),
        *(line(label, ["".join(cells) for cells in row]) for label, row in rows.items()),
    ]


def _line(line: FittedLine | None) -> str:
    """Format a straight line as `(x - 2.50) / 1.12`, or as `x / 1.12` if it subtracts nothing."""
    if line is None:
        return "no straight line of x"
    center = round(line.center, 2)
    minus = f"(x {'+' if center < 0 else '-'} {abs(center):.2f})" if center else "x"
    return f"{minus} / {line.divisor:.2f}"


def _properties(example: WorkedExample) -> dict[str, str]:
    counts, settings = example.pooled_padding, example.shown.settings
    parameters, buffers = (
        ", ".join(f"{name} {list(x.shape)}" for name, x in tensors.items()) or "none"
        for tensors in example.stored
    )
    in_words = [f"{key}={str(value).lower()}" for key, value in settings.items()]
    return {
        "pools over": axes_in_words(example.norm.pools),
        "in training it sees": influences_in_words(example.influences),
        "in eval it sees": influences_in_words(example.influences_in_eval),
        "one at a time": _stepwise(example.norm),
        "pools padding": f"with padding={', '.join(c or 'any' for c in counts)}"
        if counts
        else "no",
        "parameters": parameters,
        "buffers": buffers,
        "settings": ", ".join(in_words) or "none",
    }
