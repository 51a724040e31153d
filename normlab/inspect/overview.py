"""How `normlab explain` shows several norms: side by side, all axes, images, the documents."""

from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from normlab.commands._terminal import print_table
from normlab.inspect import documents
from normlab.inspect.axes import OF_IMAGES, axes_in_words, in_order
from normlab.inspect.page import Page, Row, choose, overview
from normlab.inspect.screen import (
    console,
    drawing,
    heading,
    list_facts,
    number,
    numbers,
    say,
    sayings,
    states,
)

FIGURE = ("bn", "seqn", "in", "gn_sample")
"""The four norms of the group norm paper's drawing: Wu and He 2018, figure 2."""
_PAPER = ("batch norm", "layer norm", "instance norm", "group norm")
_TORCH = {"bn": "BatchNorm2d", "seqn": "GroupNorm(1, C)", "in": "InstanceNorm2d"}
_TORCH |= {"gn_sample": "GroupNorm(G, C)", "ln": "LayerNorm, channels last"}
# The subsets of the axes by size, each row as it is drawn: none below, all on top.
_LATTICE = (
    (("batch", "position", "feature"),),
    (("batch", "position"), ("batch", "feature"), ("position", "feature")),
    (("batch",), ("position",), ("feature",)),
    ((),),
)
_COLUMN = 26


def show_side_by_side(pages: Sequence[Page], *, across: int = 3) -> None:
    """Print what differs between norms, one column each, a few at a time."""
    for start in range(0, len(pages), across):
        part = pages[start : start + across]
        compared = [_comparison(page) for page in part]
        rows = [[name, *(facts[name] for facts in compared)] for name in compared[0]]
        heading("Side by side")
        print_table(["", *(page.name for page in part)], rows)


def _comparison(page: Page) -> dict[str, str]:
    """Return the facts that distinguish norms, in few words each."""
    worked = page.worked
    group = worked.groups[0] if worked is not None and page.pools else None
    padding = page.padding.treatments if page.padding is not None else []
    moving = [t.name or "yes" for t in padding if t.moves]
    return {
        "pools over": axes_in_words(page.pools),
        "groups": f"{page.groups} of {len(page.pooled)}" if page.pools else "-",
        "first group": numbers(group.values) if group else "-",
        "mean, var": f"{number(group.mean)}, {number(group.var)}" if group else "-",
        "first 1 becomes": number(worked.train[0][0][0]) if worked is not None else "-",
        "... in eval": number(worked.eval[0][0][0]) if worked is not None else "-",
        "running statistics": "yes" if page.running else "no",
        "sees later tokens": _sees(page, "later"),
        "sees other samples": _sees(page, "others"),
        "one at a time": ("in eval" if page.running else "yes") if page.incremental else "no",
        "padding counts": f"with {', '.join(moving)}" if moving else "no",
        "parameters": states(page.parameters),
    }


def _sees(page: Page, what: str) -> str:
    if page.sees_train is None or page.sees_eval is None:
        return "-"
    train, evaluated = getattr(page.sees_train, what), getattr(page.sees_eval, what)
    return ("yes" if evaluated else "in training") if train else "no"


def show_all(found: Sequence[Row]) -> None:
    """Print the sets of axes with every norm in them, and a table of all norms."""
    heading("A norm is a set of axes to pool over")
    say("In a block of samples x tokens x features, the values that are pooled share")
    say("one mean and one variance.\n")
    for subsets in _LATTICE:
        width = _COLUMN * 3 // len(subsets)
        columns = []
        for axes in subsets:
            here = " ".join(row.name for row in found if row.pools == list(axes))
            columns.append([f"[{axes_in_words(axes)}]", *wrap(here, width - 2)])
        for texts in zip_longest(*columns, fillvalue=""):
            say("".join(text.center(width) for text in texts).rstrip())
    say("")
    table = [
        [
            row.name,
            axes_in_words(row.pools),
            "yes" if row.running else "no",
            ("in eval" if row.running else "yes") if row.incremental else "no",
            row.parameters,
            row.buffers,
        ]
        for row in found
    ]
    columns = ["norm", "pools over", "running", "stepwise", "parameters", "buffers"]
    print_table(columns, table, numeric=columns[-2:])
    say("\nD: the width; running: statistics kept for eval; stepwise: a token at a time")
    say("Next: normlab explain ln bn        both in full, then side by side")
    say("      normlab explain --documents  what the documents' sentences pool over")


def show_images(pages: Sequence[Page]) -> None:
    """Print each norm's pool in a block of images, and what the norms are called elsewhere.

    An image's pixels are the positions of a stream and its channels the features. What the paper
    calls layer norm is `seqn` here, over a whole image; `ln` is that of one pixel over its channels
    (ConvNeXt's).
    """
    heading("Of 2 images (N) of 3 pixels (H, W) and 4 channels (C, across)")
    say("Brackets: what shares its mean and variance with the value marked *.")
    for page in pages:
        say(f"\n{page.name}")
        for line in drawing(page, ("N", "H, W", "C")):
            console().print(line)
    say("")
    paper: dict[str, str] = dict(zip(FIGURE, _PAPER, strict=True))
    rows = [
        [
            page.name,
            paper.get(page.name, "-"),
            axes_in_words(page.pools, OF_IMAGES) + (" of a group" if page.changed else ""),
            _TORCH.get(page.name, "-"),
        ]
        for page in pages
    ]
    notes = [f"{p.name} is drawn with {k}={v}" for p in pages for k, v in p.changed.items()]
    notes.append("the paper: Wu and He 2018, figure 2")
    print_table(["norm", "in the paper", "pools over", "in torch"], rows, notes=notes)
    say("Next: normlab train task=digits norm=gn_sample   a residual network with it")


def show_documents() -> None:
    """Print the documents' sentences under the axes that each is about, and their code."""
    names = {row.name: row.pools for row in overview(choose())}
    for axes in sorted({s.axes for s in documents.SAYINGS}, key=lambda axes: (len(axes), *axes)):
        which = ", ".join(name for name, pools in names.items() if set(pools) == axes)
        heading(f"{axes_in_words(axes)}: {which}")
        list_facts(sayings(documents.about(axes)))
    heading("The documents' code, run on their own tensor [2, 3, 4] (D0, section 7)")
    for attempt in documents.attempts():
        text = f"raises: {attempt.error}"
        if attempt.axes is not None:
            which = [name for name, pools in names.items() if set(pools) == attempt.axes]
            text = f"runs, and pools over {axes_in_words(attempt.axes)}: {', '.join(which)}"
        say(f"  {attempt.call}\n      {text}")


def documents_plain() -> dict[str, Any]:
    """Return the documents' sentences as plain values for JSON."""
    return {
        "sayings": [vars(s) | {"axes": in_order(s.axes)} for s in documents.SAYINGS],
        "code": [
            vars(a) | {"axes": None if a.axes is None else in_order(a.axes)}
            for a in documents.attempts()
        ],
    }
