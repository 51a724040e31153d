"""Decides the overview: the lattice of axes with every norm in it, and the documents' sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from normlab.commands._terminal import print_table
from normlab.explain import documents, words
from normlab.explain.block import AXES, axes_in_words
from normlab.explain.page import choose
from normlab.explain.subject import WIDTH, subject
from normlab.explain.tables import total
from normlab.explain.terminal import heading, list_facts, say
from normlab.norms.base import RunningNorm
from normlab.registry import Option

# The subsets of the axes by size, each row as it is drawn: none below, all on top.
_ROWS = (
    (("batch", "position", "feature"),),
    (("batch", "position"), ("batch", "feature"), ("position", "feature")),
    (("batch",), ("position",), ("feature",)),
    ((),),
)
_COLUMN = 26


@dataclass(frozen=True)
class Row:
    """A norm in a line: `parameters` and `buffers` are how many numbers, with D for the width."""

    name: str
    description: str
    pools: list[str]
    running: bool
    incremental: bool
    parameters: str
    buffers: str


def rows(options: Sequence[Option]) -> list[Row]:
    """Return a line for each option, from those that pool over nothing to those over all."""
    found = []
    for option in options:
        norms = narrow, wide = [subject(option).make(width) for width in (WIDTH, 2 * WIDTH)]
        kept = [
            [table for name, table in norm.named_buffers() if name in norm.state_dict()]
            for norm in norms
        ]
        found.append(
            Row(
                name=option.name,
                description=option.description,
                pools=[axis for axis in AXES if axis in narrow.pools],
                running=isinstance(narrow, RunningNorm),
                incremental=narrow.incremental,
                parameters=total(narrow.parameters(), wide.parameters()),
                buffers=total(*kept),
            )
        )
    return sorted(found, key=lambda row: (len(row.pools), row.pools != ["feature"], row.name))


def show(found: Sequence[Row]) -> None:
    """Print the lattice and a table of all norms."""
    heading("A norm is a set of axes to pool over")
    say("In a block of samples x tokens x features, the values that are pooled share")
    say("one mean and one variance.")
    say("")
    for line in lattice(found):
        say(line)
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
    print_table(columns, table, numeric=["parameters", "buffers"])
    say("")
    say("D: the width; running: statistics kept for eval; stepwise: a token at a time")
    say("Go on: normlab explain ln bn        both in full, then side by side")
    say("       normlab explain --documents  what the documents' sentences pool over")
    say("       normlab explain --svg FILE   all of them as one picture")


def lattice(found: Sequence[Row]) -> list[str]:
    """Draw the subsets of the axes, the norms beneath each."""
    lines = []
    for subsets in _ROWS:
        width = _COLUMN * 3 // len(subsets)
        columns = []
        for axes in subsets:
            here = " ".join(row.name for row in found if row.pools == list(axes))
            columns.append([f"[{axes_in_words(axes)}]", *wrap(here, width - 2)])
        for texts in zip_longest(*columns, fillvalue=""):
            lines.append("".join(text.center(width) for text in texts).rstrip())
    return lines


def show_documents() -> None:
    """Print the documents' sentences under the axes that each is about, their code, their slips."""
    names = {row.name: row.pools for row in rows(choose())}
    for axes in sorted({s.axes for s in documents.SAYINGS}, key=lambda axes: (len(axes), *axes)):
        which = ", ".join(name for name, pools in names.items() if set(pools) == axes)
        heading(f"{axes_in_words(axes)}: {which}")
        list_facts(words.sayings(documents.about(axes)))
    heading("The documents' code, run on their own tensor [2, 3, 4] (D0, section 7)")
    for attempt in documents.attempts():
        if attempt.axes is None:
            text = f"raises: {attempt.error}"
        else:
            which = [name for name, pools in names.items() if set(pools) == attempt.axes]
            text = f"runs, and pools over {axes_in_words(attempt.axes)}: {', '.join(which)}"
        say(f"  {attempt.call}")
        say(f"      {text}")
    heading("Where a document errs")
    list_facts([(s.place, f"{s.says}\n{s.words}\n{s.right}") for s in documents.SLIPS])
    heading("What is not trained here")
    place, *texts = documents.NOT_TRAINED
    list_facts([(place, "\n".join(texts))])


def documents_plain() -> dict[str, Any]:
    """Return the documents' sentences as plain values for JSON."""
    return {
        "sayings": [vars(s) | {"axes": _listed(s.axes)} for s in documents.SAYINGS],
        "code": [
            vars(a) | {"axes": None if a.axes is None else _listed(a.axes)}
            for a in documents.attempts()
        ],
        "slips": [vars(slip) for slip in documents.SLIPS],
        "not_trained": dict(
            zip(("place", "says", "words", "why"), documents.NOT_TRAINED, strict=True)
        ),
    }


def _listed(axes: frozenset[str]) -> list[str]:
    return [axis for axis in AXES if axis in axes]
