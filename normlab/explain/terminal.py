"""Decides how a page reads in a terminal: the picture, then what is computed, then what follows.

Prose folds at the terminal's width; a pipe gets each paragraph as one line. Colours are left to
bold, dim and reversed text, which any background carries.
"""

import shutil
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from normlab.commands._terminal import print_table
from normlab.explain import words
from normlab.explain.block import EXAMPLE
from normlab.explain.dependence import SHAPE
from normlab.explain.grid import draw
from normlab.explain.outlier import Outlier
from normlab.explain.padding import Figures, Padding
from normlab.explain.page import Page
from normlab.explain.worked import DOCUMENT, Block, Kept, Worked, estimate

_PIPE_WIDTH = 10_000
_RULE = 80
_STYLES = {"": "", "other": "dim", "pooled": "bold", "example": "bold reverse"}
_LABEL = 22


def console() -> Console:
    """Return a console on standard output that folds prose in a terminal only."""
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=wide, highlight=False)


def heading(text: str) -> None:
    """Print the name of a section."""
    console().print()
    console().print(Text(text, style="bold"))


def say(text: str) -> None:
    """Print a paragraph."""
    console().print(Text(text))


def list_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and what is to be said of them, in two columns."""
    out = console()
    for name, text in facts:
        label = name.ljust(_LABEL)
        for line in Text(text).wrap(out, max(out.width - _LABEL - 1, _LABEL), overflow="fold"):
            out.print(Text(label + line.plain.rstrip()))
            label = " " * _LABEL


def show(page: Page) -> None:
    """Print the page of a norm."""
    out = console()
    out.print(Text(f"{page.name}: {page.description}", style="bold"))
    out.print(Text(_line() * min(_RULE, out.width), style="dim"))
    say(words.pooling(page))
    out.print()
    _picture(page)
    heading("What it computes")
    list_facts(words.formula(page))
    if page.refused:
        say(f"The norm refuses the documents' numbers: {page.refused}")
    if page.worked is not None:
        _worked(page, page.worked)
    if page.padding is not None:
        _padding(page.padding)
    if page.outlier is not None:
        _outlier(page.outlier)
    heading("Training and eval, one token at a time")
    list_facts(words.use(page))
    heading("What it keeps and costs")
    list_facts(words.upkeep(page))
    if page.documents:
        heading("In the documents")
        list_facts(words.sayings(page.documents))
    out.print()
    say(f"Try it: normlab train norm={page.name}")


def _line() -> str:
    return "-" if _ascii_only() else "─"


def _ascii_only() -> bool:
    return not (sys.stdout.encoding or "").lower().startswith("utf")


def _picture(page: Page) -> None:
    for line in draw(SHAPE, set(page.pooled), EXAMPLE, DOCUMENT, ascii_only=_ascii_only()):
        drawn = Text.assemble(*((text, _STYLES[kind]) for text, kind in line))
        drawn.rstrip()
        console().print(drawn)
    say(words.legend(page, thick="# lines" if _ascii_only() else "Heavy lines"))


def _worked(page: Page, worked: Worked) -> None:
    heading("On the documents' tensor")
    if page.pools:
        of = _without_mean if worked.kind == "scale" else _pair
        rows = [
            [g.name, words.numbers(g.values), *of(g.mean, g.var), words.line(g)]
            for g in worked.groups
        ]
        numeric = ["mean square"] if worked.kind == "scale" else ["mean", "var"]
        print_table(["group", "its values", *numeric, "comes out as"], rows, numeric=numeric)
        console().print()
    columns = ["sample", "token", "in", "out"]
    tables = [worked.x, worked.train]
    if worked.same_in_eval:
        here = "" if page.sees_train == page.sees_eval else "here "
        columns[-1] = f"out ({here}train and eval alike)"
    else:
        columns[-1:] = ["out in train", "out in eval"]
        tables.append(worked.eval)
    rows = [
        [str(s + 1), str(t + 1), *(_row(table, s, t) for table in tables)]
        for s, sample in enumerate(worked.x)
        for t in range(len(sample))
    ]
    print_table(columns, rows)
    if any(group.kept for group in worked.groups):
        _running(page, worked)


def _row(block: Block, sample: int, token: int) -> str:
    whole = all(float(v).is_integer() for s in block for t in s for v in t)
    values = block[sample][token]
    return " ".join(f"{v:2.0f}" if whole else f"{words.number(v):>5}" for v in values)


def _running(page: Page, worked: Worked) -> None:
    heading("Running statistics, which eval takes in place of the batch")
    say(words.running(page, worked))
    found = [
        (g.name, _entering(g.entered, len(g.values), worked.unbiased), g.kept)
        for g in worked.groups
        if g.entered and g.kept
    ]
    if any(both.mean for _, *two in found for both in two):
        of, names = _pair, ["mean", "var (n - 1)" if worked.unbiased else "var", "mean", "var"]
    else:
        of, names = _without_mean, ["mean square", "mean square"]
    half = len(names) // 2
    columns = [f"batch {name}" for name in names[:half]] + [f"running {n}" for n in names[half:]]
    rows = [[name, *(t for one in two for t in of(one.mean, one.var))] for name, *two in found]
    print_table(["group", *columns], rows, numeric=columns)


def _entering(batch: Kept, count: int, unbiased: bool | None) -> Kept:
    return Kept(batch.mean, estimate(batch.var, count, unbiased))


def _padding(padding: Padding) -> None:
    heading("Padding")
    say(words.padded(padding))
    if not padding.padded:
        return
    rows = []
    for t in padding.treatments:
        figures = (*_figures(t.used), words.number(t.out), *_figures(t.five))
        rows.append([t.name or "left out", *figures, "yes" if t.moves else "no"])
    columns = ["padding", "mean", "var", "first out", "mean 1..5", "var 1..5", "moves real tokens"]
    print_table(columns, rows, notes=words.padding_notes(padding), numeric=columns[1:-1])


def _figures(figures: Figures | None) -> tuple[str, ...]:
    return ("-", "-") if figures is None else _pair(figures.mean, figures.var)


def _pair(first: float, second: float) -> tuple[str, ...]:
    return words.number(first), words.number(second)


def _without_mean(mean: float, var: float) -> tuple[str, ...]:
    return (words.number(var + mean**2),)


def _outlier(outlier: Outlier) -> None:
    heading("The documents' outlier")
    columns = ["word", "in", "out", "attention before", "after"]
    rows = [
        [
            word,
            words.numbers(outlier.x[i]),
            " ".join(f"{words.number(v):>6}" for v in outlier.y[i]),
            words.number(outlier.attention_before[i]),
            words.number(outlier.attention_after[i]),
        ]
        for i, word in enumerate(outlier.words)
    ]
    print_table(columns, rows, notes=words.outlier_notes(outlier), numeric=columns[3:])


def show_side_by_side(pages: Sequence[Page], *, across: int = 3) -> None:
    """Print what differs between norms, a column each, a few at a time."""
    for start in range(0, len(pages), across):
        part = pages[start : start + across]
        compared = [words.comparison(page) for page in part]
        rows = [[name, *(facts[name] for facts in compared)] for name in compared[0]]
        heading("Side by side")
        print_table(["", *(page.name for page in part)], rows)
