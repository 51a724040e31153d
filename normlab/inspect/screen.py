"""The terminal output of `normlab explain`: one norm, several side by side, all, or on images."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from normlab.commands._terminal import print_prose, print_table
from normlab.inspect.subject import LONG_RUN, WIDTH
from normlab.inspect.worked import (
    DOCUMENT,
    NAMES,
    SHAPE,
    WIDE,
    Block,
    Facts,
    Group,
    Page,
    axes_in_words,
)

FIGURE = {
    "bn": ("batch norm", "BatchNorm2d"),
    "seqn": ("layer norm", "GroupNorm(1, C)"),
    "in": ("instance norm", "InstanceNorm2d"),
    "gn_sample": ("group norm", "GroupNorm(G, C)"),
}
"""The norms of figure 2 of the group norm paper (Wu and He 2018), by their names in torch."""
_LABEL = 22


def show_all(found: Sequence[Facts]) -> None:
    """Print an overview of norms, one row each."""
    _heading("A norm is a set of axes to pool over")
    print_prose(
        "In a block of samples x tokens x features, the values that are pooled share one mean and "
        "one variance."
    )
    print()
    columns = ["norm", "pools over", "running", "stepwise", "parameters", "buffers"]
    rows = [
        [
            *(norm.name, axes_in_words(norm.pools), "yes" if norm.running else "no"),
            *(_one_at_a_time(norm), _size(norm.parameters), _size(norm.buffers)),
        ]
        for norm in found
    ]
    note = f"running: statistics kept for eval; stepwise: one token at a time; sizes: of {WIDE}"
    print_table(columns, rows, notes=[f"{note} features"], numeric=columns[-2:])
    print("Next: normlab explain ln bn        both in full, then side by side")


def _size(shapes: Mapping[str, list[int]]) -> str:
    return f"{sum(map(math.prod, shapes.values())):,}"


def _one_at_a_time(norm: Facts) -> str:
    return ("in eval" if norm.running else "yes") if norm.incremental else "no"


def show(page: Page) -> None:
    """Print the page of a norm."""
    print(f"{page.name}: {page.description}")
    print_prose(_pooling(page))
    print()
    draw(page)
    print("Brackets: what shares its statistics with the value marked *.")
    _heading("What it computes")
    print_prose(f"{page.docstring} ({page.module})")
    _show_worked(page)
    _heading("What follows, and what it keeps")
    for name, text in _follows(page).items():
        print_prose(f"{name:<{_LABEL}}{text}", hang=_LABEL)
    print(f"\nTry it: normlab train norm={page.name}\n")


def _heading(text: str) -> None:
    Console(highlight=False).print(Text(f"\n{text}", style="bold"))


def draw(page: Page, names: Sequence[str] = NAMES) -> None:
    """Draw the block, one grid per sample: `*` marks a value, brackets mark its pool."""
    samples, tokens, features = map(range, SHAPE)
    width = len(names[1]) + 4
    ruler = "".join(f"{feature + 1}".center(5) for feature in features)
    print(" " * width + "   ".join(f"{names[0]} {s + 1}".center(20) for s in samples).rstrip())
    print(names[2].ljust(width) + "   ".join(ruler for _ in samples).rstrip())
    for token in tokens:
        line = Text(f"{names[1]} {token + 1}".ljust(width))
        for sample in samples:
            line.append("   " if sample else "")
            for feature in features:
                cell, value = (sample, token, feature), f"{DOCUMENT[sample][token][feature]:g}"
                if not any(cell):
                    line.append(f"[*{value}]".center(5), style="bold reverse")
                elif cell in page.groups[0].cells:
                    line.append(f"[{value}]".center(5), style="bold")
                else:
                    line.append(value.center(5), style="dim")
        line.rstrip()
        Console(highlight=False).print(line)


def _pooling(page: Page) -> str:
    text = "Pools over nothing: every value is on its own, and there are no statistics"
    if page.pools:
        size, groups = len(page.groups[0].cells), len(page.groups)
        cut = f"{groups} groups of {size} values" if groups > 1 else f"all {size} values"
        text = f"Pools over {axes_in_words(page.pools)}: {cut}"
    text += ", fewer than the axes alone would give." if page.narrower else "."
    for key, value in page.changed.items():
        text += f" {key}={page.settings[key]} does not fit a width of {WIDTH}: shown with "
        text += f"{key}={value}."
    if page.step is not None:
        at = f"step {page.step} of {LONG_RUN:,}" if page.step else "the start"
        text += f" It changes during training: shown at {at}."
    return text


def _show_worked(page: Page) -> None:
    _heading("On the documents' tensor")
    if page.pools:
        columns = ["group", "its values", "mean", "var", "comes out as"]
        rows = [
            [g.name, _numbers(g.values), _number(g.mean), _number(g.var), _line(g)]
            for g in page.groups
        ]
        print_table(columns, rows, numeric=columns[2:4])
        print()
    blocks = {"in": page.x, "out in train": page.train, "out in eval": page.eval}
    if page.train == page.eval:
        blocks = {"in": page.x, "out (the same in train and eval)": page.train}
    rows = [
        [str(s + 1), str(t + 1), *(_token(block, s, t) for block in blocks.values())]
        for s in range(SHAPE[0])
        for t in range(SHAPE[1])
    ]
    print_table(["sample", "token", *blocks], rows)
    if page.running:
        _heading("Running statistics, which eval takes in place of the batch")
        columns = ["batch mean", "batch var", "running mean", "running var"]
        kept = [(g.name, *g.entered, *g.kept) for g in page.groups if g.entered and g.kept]
        rows = [[name, *map(_number, values)] for name, *values in kept]
        note = "after one batch; batch var: what enters, over n - 1 if unbiased, or a mean square"
        print_table(["group", *columns], rows, notes=[note], numeric=columns)


def _number(value: float) -> str:
    """Format a value with two decimals, without a minus sign for zero."""
    return f"{value:.2f}".replace("-0.00", "0.00")


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _token(block: Block, sample: int, token: int) -> str:
    whole = all(float(v).is_integer() for s in block for t in s for v in t)
    return " ".join(f"{v:2.0f}" if whole else f"{_number(v):>5}" for v in block[sample][token])


def _line(group: Group) -> str:
    """Format what the module does to the values of a group, such as `(x - 2.50) / 1.12`."""
    if group.line is None:
        return "no straight line of x"
    center, divisor = map(_number, group.line)
    return f"(x - {center}) / {divisor}".replace("- -", "+ ").replace("(x - 0.00)", "x")


def show_side_by_side(pages: Sequence[Page]) -> None:
    """Print norms in columns next to each other, three at a time."""
    for start in range(0, len(pages), 3):
        part = pages[start : start + 3]
        _heading("Side by side")
        compared = [_first_group(page) | _follows(page) for page in part]
        names = [name for name in compared[0] if name != "settings"]
        rows = [[name, *(facts[name] for facts in compared)] for name in names]
        print_table(["", *(page.name for page in part)], rows)


def _first_group(page: Page) -> dict[str, str]:
    """Return the pooled axes, the first group's statistics and the outputs of its first value."""
    group = page.groups[0]
    return {
        "pools over": axes_in_words(page.pools),
        "groups": f"{len(page.groups)} of {len(group.cells)}",
        "first group": _numbers(group.values),
        "mean, var": f"{_number(group.mean)}, {_number(group.var)}",
        "first 1 becomes": _number(page.train[0][0][0]),
        "... in eval": _number(page.eval[0][0][0]),
    }


def _follows(page: Page) -> dict[str, str]:
    """Return what an output depends on in training and in eval, and what the norm stores."""
    moving = ", ".join(how or "any" for how, moves in page.padding.items() if moves)
    settings = [f"{key}={str(value).lower()}" for key, value in page.settings.items()]
    return {
        "in training it sees": page.sees_train,
        "in eval it sees": page.sees_eval,
        "one at a time": _one_at_a_time(page),
        "padding counts": f"with padding={moving}" if moving else "no",
        "running statistics": "yes" if page.running else "no",
        "parameters": _shapes(page.parameters),
        "buffers": _shapes(page.buffers),
        "settings": ", ".join(settings) or "none",
    }


def _shapes(shapes: Mapping[str, list[int]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"


def show_images(pages: Sequence[Page]) -> None:
    """Print what each norm pools over in a block of images, and its name in the paper and torch.

    An image's pixels are the positions of a stream, its channels the features. The paper's layer
    norm pools over a whole image and is `seqn` here; `ln` pools over the channels of one pixel, as
    in ConvNeXt.
    """
    _heading("2 images (N) of 3 pixels (H, W) and 4 channels (C, across)")
    print("Brackets: what shares its mean and variance with the value marked *.")
    for page in pages:
        print(f"\n{page.name}")
        draw(page, ("N", "H, W", "C"))
    print()
    rows = []
    for page in pages:
        axes = axes_in_words(page.pools, ("N", "(H, W)", "C"))
        axes += " of a group" if page.changed else ""
        paper, torch = FIGURE.get(page.name, ("-", "-"))
        rows.append([page.name, paper, axes, torch])
    notes = [f"{p.name} is drawn with {k}={v}" for p in pages for k, v in p.changed.items()]
    notes.append("the paper: Wu and He 2018, figure 2")
    print_table(["norm", "in the paper", "pools over", "in torch"], rows, notes=notes)
    print("Next: normlab train task=digits norm=gn_sample   a residual network with it")
