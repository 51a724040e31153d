"""How `normlab explain` looks in a terminal: the drawing, what is computed, and what follows."""

import re
import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from normlab.commands._terminal import print_table
from normlab.inspect.axes import (
    EXAMPLE,
    NAMES,
    SHAPE,
    axes_in_words,
)
from normlab.inspect.documents import Saying
from normlab.inspect.page import Page, State
from normlab.inspect.subject import AXES, LONG_RUN, WIDTH
from normlab.inspect.worked import DOCUMENT, Block, Group, Padding, Pair, Worked, estimate

_FORMULAS = {
    "standardize": ("(x - mean) / sqrt(var + eps)", "mean and var of the group (var over n)"),
    "scale": ("x / sqrt(mean(x^2) + eps)", "mean square of the group; no mean is subtracted"),
}
_LABEL = 22
Facts = list[tuple[str, str]]


def console() -> Console:
    """Return a console that folds prose in a terminal only."""
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    return Console(width=wide, highlight=False)


def heading(text: str) -> None:
    """Print the name of a section."""
    console().print(Text(f"\n{text}", style="bold"))


def say(text: str) -> None:
    """Print a paragraph."""
    console().print(Text(text))


def list_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and what is to be said of them, in two columns."""
    out = console()
    for name, text in facts:
        label = name.ljust(_LABEL)
        for line in Text(text).wrap(out, max(out.width - _LABEL - 1, _LABEL), overflow="fold"):
            out.print(Text(label + line.plain.rstrip()))
            label = " " * _LABEL


def number(value: float) -> str:
    """Write a value with two decimals, and no minus before zero."""
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text


def numbers(values: Sequence[float]) -> str:
    """Write input values, as short as they are."""
    return " ".join(f"{value:g}" for value in values)


def drawing(page: Page, names: Sequence[str] = NAMES) -> list[Text]:
    """Draw the block, one sheet per sample: `*` marks a value, brackets what is pooled with it."""
    samples, tokens, features = SHAPE
    ruler = "".join(f"{feature + 1}".center(5) for feature in range(features))
    width = len(names[1]) + 4
    lines = [
        Text(" " * width + "   ".join(f"{names[0]} {s + 1}".center(20) for s in range(samples))),
        Text(names[2].ljust(width) + "   ".join([ruler] * samples)),
    ]
    for token in range(tokens):
        line = Text(f"{names[1]} {token + 1}".ljust(width))
        for sample in range(samples):
            line.append("   " if sample else "")
            for feature in range(features):
                cell, value = (sample, token, feature), f"{DOCUMENT[sample][token][feature]:g}"
                if cell == EXAMPLE:
                    line.append(f"[*{value}]".center(5), style="bold reverse")
                elif cell in page.pooled:
                    line.append(f"[{value}]".center(5), style="bold")
                else:
                    line.append(value.center(5), style="dim")
        line.rstrip()
        lines.append(line)
    return lines


def show(page: Page) -> None:
    """Print the page of a norm."""
    out = console()
    out.print(Text(f"{page.name}: {page.description}", style="bold"))
    say(f"{_pooling(page)}\n")
    for line in drawing(page):
        out.print(line)
    say("Brackets: what shares its statistics with the value marked *.")
    heading("What it computes")
    list_facts(_formula(page))
    if page.refused:
        say(f"The norm refuses the documents' numbers: {page.refused}")
    if page.worked is not None:
        _show_worked(page, page.worked)
    if page.padding is not None:
        _show_padding(page.padding)
    _show_outlier(page)
    heading("Training and eval, one token at a time")
    list_facts(_use(page))
    heading("What it keeps")
    list_facts(_upkeep(page))
    if page.documents:
        heading("In the documents")
        list_facts(sayings(page.documents))
    say(f"\nTry it: normlab train norm={page.name}")


def _pooling(page: Page) -> str:
    text = "Pools over nothing: every value is on its own, and there are no statistics"
    if page.pools:
        size = len(page.pooled)
        cut = f"{page.groups} groups of {size} values" if page.groups > 1 else f"all {size} values"
        text = f"Pools over {axes_in_words(page.pools)}: {cut}"
    text += ", fewer than the axes alone would give." if page.narrower else "."
    default = {setting.name: setting.value for setting in page.settings}
    for key, value in page.changed.items():
        text += f" {key}={default[key]} does not fit a width of {WIDTH}: shown with {key}={value}."
    if page.scheduled:
        at = f"step {page.step} of {LONG_RUN:,}" if page.step else "the start"
        text += f" It changes as training goes on: shown at {at}."
    return text


def _formula(page: Page) -> Facts:
    """Give the formula as found from the outputs, and the source as the module states it."""
    facts = []
    kind = "" if page.worked is None else page.worked.kind
    if kind in _FORMULAS:
        core, where = _FORMULAS[kind]
        learned = [table.name for table in page.parameters]
        scaled = f"weight * {core}" if "weight" in learned else core
        facts.append(("y =", f"{scaled} + bias" if "bias" in learned else scaled))
        facts.append(("", f"{where}; the outputs below agree with it"))
    elif kind == "identity":
        facts.append(("y =", "x"))
    joined = re.sub(r"(?<=\S)\n(?=\S)", " ", page.docstring)  # lines that are set in stay
    text = "\n".join(line.rstrip() for line in joined.splitlines() if line.strip())
    facts.append(("source", text))
    if page.forward:
        facts.append(("", page.forward))
    return [*facts, ("module", page.target)]


def _show_worked(page: Page, worked: Worked) -> None:
    heading("On the documents' tensor")
    names = ["mean square"] if worked.kind == "scale" else ["mean", "var"]
    if page.pools:
        rows = [
            [g.name, numbers(g.values), *_moments(Pair(g.mean, g.var), names), _line(g)]
            for g in worked.groups
        ]
        print_table(["group", "its values", *names, "comes out as"], rows, numeric=names)
        say("")
    same = worked.same_in_eval
    here = "" if page.sees_train == page.sees_eval else "here "
    outs = [f"out ({here}the same in train and eval)"] if same else ["out in train", "out in eval"]
    blocks = [worked.x, worked.train] if same else [worked.x, worked.train, worked.eval]
    rows = [
        [str(s + 1), str(t + 1), *(_token(block, s, t) for block in blocks)]
        for s, sample in enumerate(worked.x)
        for t in range(len(sample))
    ]
    print_table(["sample", "token", "in", *outs], rows)
    found = [
        (g.name, _entering(g.entered, len(g.values), worked.unbiased), g.kept)
        for g in worked.groups
        if g.entered and g.kept
    ]
    if not found or worked.start is None:
        return
    heading("Running statistics, which eval takes in place of the batch")
    mean_square = not any(pair.mean for _, *pairs in found for pair in pairs)
    first = f"mean {worked.start.mean:g} and variance {worked.start.var:g}"
    start = f"a mean square of {worked.start.var:g}" if mean_square else first
    text = f"After one batch, starting from {start}:"
    if worked.update_holds and worked.momentum is not None:
        step = f"{worked.momentum:g}"
        text = (
            f"running = (1 - {step}) * before + {step} * batch, starting from {start}. One batch "
            f"moves them {worked.momentum:.0%} of the way, so eval differs from train above."
        )
    say(text)
    names = ["mean square"] if mean_square else ["mean", "var"]
    batch = [f"batch {name}" for name in names]
    if worked.unbiased and not mean_square:
        batch[-1] += " (n - 1)"
    columns = [*batch, *(f"running {name}" for name in names)]
    rows = [[name, *_moments(a, names), *_moments(b, names)] for name, a, b in found]
    print_table(["group", *columns], rows, numeric=columns)


def _entering(batch: Pair, count: int, unbiased: bool | None) -> Pair:
    return Pair(batch.mean, estimate(batch.var, count, unbiased))


def _moments(pair: Pair | None, names: Sequence[str] = ("mean", "var")) -> list[str]:
    if pair is None:
        return ["-"] * len(names)
    if len(names) == 1:
        return [number(pair.var + pair.mean**2)]
    return [number(pair.mean), number(pair.var)]


def _token(block: Block, sample: int, token: int) -> str:
    whole = all(float(v).is_integer() for s in block for t in s for v in t)
    values = block[sample][token]
    return " ".join(f"{v:2.0f}" if whole else f"{number(v):>5}" for v in values)


def _line(group: Group) -> str:
    """Write what the module does to the values of a group, as read off its outputs."""
    if group.line is None:
        return "no straight line of x"
    center, divisor = number(group.line.center), number(group.line.divisor)
    if center == "0.00":
        return f"x / {divisor}"
    return f"(x - {center}) / {divisor}".replace("- -", "+ ")


def _show_padding(padding: Padding) -> None:
    heading("Padding")
    what = "Sample 2 loses its last token and gets zeros there as padding (lengths 3 and 2)."
    if not padding.padded:
        moved = any(treatment.moves for treatment in padding.treatments)
        same = (
            "No group holds both real and padded tokens, so real tokens have the same output "
            "whatever the padding's values and length (tried)."
        )
        other = "The output of real tokens changes, though no padding is in their group."
        say(f"{what} {other if moved else same}")
        return
    say(
        f"{what} In the group of {padding.group}: real {numbers(padding.real)}, padding "
        f"{numbers(padding.padded)}. The module's mean and variance of it, and the output of its "
        "first real value:"
    )
    rows = [
        [
            *(t.name or "left out", *_moments(t.used), number(t.out), *_moments(t.five)),
            "yes" if t.moves else "no",
        ]
        for t in padding.treatments
    ]
    columns = ["padding", "mean", "var", "first out", "mean 1..5", "var 1..5", "moves real tokens"]
    notes = ["1..5: the values 1 2 3 4 5 and five zeros of padding, along an axis of tokens."]
    if any(_moments(t.five) == ["1.50", "3.25"] for t in padding.treatments):
        notes.append(
            "Counted, padding turns mean 3 into 1.5 and variance 2 into 3.25 (as in tensorflow "
            "issue 30161)."
        )
    notes.append("moves real tokens: whether other or more padding changes any real output (tried)")
    print_table(columns, rows, notes=notes, numeric=columns[1:-1])


def _show_outlier(page: Page) -> None:
    found = page.outlier
    if found is None:
        return
    heading("The documents' outlier")
    rows = [
        [word, numbers(x), " ".join(f"{number(v):>6}" for v in y), number(before), number(after)]
        for word, x, y, before, after in zip(
            *(found.words, found.x, found.y, found.attention_before, found.attention_after),
            strict=True,
        )
    ]
    notes = [
        "The sentence of D2, section 4, alone in its batch, in train mode. Attention: softmax of "
        "x_1 x_j / sqrt(4), where `I` looks, with the vectors as queries and keys.",
        f"Slope of the softmax, 1 - sum p^2 (0: saturated, no gradient): "
        f"{number(found.slope_before)} before, {number(found.slope_after)} after.",
    ]
    columns = ["word", "in", "out", "attention before", "after"]
    print_table(columns, rows, notes=notes, numeric=columns[3:])


def _use(page: Page) -> Facts:
    """Say what an output depends on in both modes, and what follows for decoding."""
    train, evaluated = page.sees_train, page.sees_eval
    facts = []
    if train is not None and evaluated is not None:
        facts.append(("train(): depends on", train.in_words()))
        facts.append(("eval(): depends on", evaluated.in_words()))
    if page.worked is not None:
        text = "nothing: outputs are equal to the bit" if page.worked.same_in_eval else "outputs"
        if train != evaluated:
            text = "outputs"
            if page.running:
                text += ": batch statistics in train(), running ones in eval()"
        facts.append(("the modes differ in", text))
    one = "no: a token's output waits for the other tokens it depends on"
    if page.incremental:
        one = "yes: no other token is needed, in any mode"
        if page.running:
            one = "yes in eval, from running statistics; never in training"
    facts.append(("one token at a time", one))
    future = "unknown"
    if train is not None and evaluated is not None:
        future = "a token never sees later ones" + ("; other samples are seen" * train.others)
        if evaluated.later:
            future = "a token sees later ones of its sample, in training and in eval"
        elif train.later:
            future = (
                "in training a token sees later ones, in eval it does not, so a decoder sees "
                "future tokens during training"
            )
    facts.append(("the future", future))
    if page.keeps_order is not None:
        kept = [
            f"{NAMES[AXES.index(axis)]}s {'yes' if on else 'no'}"
            for axis, on in page.keeps_order.items()
        ]
        facts.append(("keeps the order of", ", ".join(kept) + " (by trial, with weight 1)"))
    return facts


def _upkeep(page: Page) -> Facts:
    """Say what is stored and what the config sets."""
    settings = []
    for setting in page.settings:
        value = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
        others = [name for name in setting.allowed if name != setting.value]
        also = f" (or {', '.join(others)})" if others else ""
        settings.append(f"{setting.name}={value}{also}")
    return [
        ("parameters", states(page.parameters)),
        ("buffers", states(page.buffers)),
        ("settings", ", ".join(settings) or "none"),
    ]


def states(found: Sequence[State]) -> str:
    """Write tensors with their shapes."""
    return ", ".join(f"{state.name} {state.shape}" for state in found) or "none"


def sayings(found: Sequence[Saying]) -> Facts:
    """Write the documents' sentences with their places."""
    return [(s.place, "\n".join(filter(None, (s.says, s.words, s.note)))) for s in found]
