"""How `normlab explain` looks in a terminal: one norm, several side by side, all, and on images."""

import re
import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from normlab.commands._terminal import print_table
from normlab.inspect.axes import EXAMPLE, NAMES, OF_IMAGES, SHAPE, axes_in_words
from normlab.inspect.page import Page, Row, State
from normlab.inspect.subject import LONG_RUN, WIDTH
from normlab.inspect.worked import DOCUMENT, Block, Group, Padding, Pair, Worked, estimate

_FORMULAS = {
    "standardize": ("(x - mean) / sqrt(var + eps)", "mean and var of the group (var over n)"),
    "scale": ("x / sqrt(mean(x^2) + eps)", "mean square of the group; no mean is subtracted"),
}
FIGURE = ("bn", "seqn", "in", "gn_sample")
"""The four norms of the group norm paper's drawing: Wu and He 2018, figure 2."""
_PAPER = ("batch norm", "layer norm", "instance norm", "group norm")
_TORCH = {"bn": "BatchNorm2d", "seqn": "GroupNorm(1, C)", "in": "InstanceNorm2d"}
_TORCH |= {"gn_sample": "GroupNorm(G, C)", "ln": "LayerNorm, channels last"}
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
    heading("Training and eval, one token at a time")
    list_facts(_use(page))
    heading("What it keeps")
    list_facts(_upkeep(page))
    if page.documents:
        heading("In the documents")
        list_facts(
            (s["place"], "\n".join(filter(None, (s["says"], s["words"], s["note"]))))
            for s in page.documents
        )
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
    found = []
    for g in worked.groups:
        if g.entered and g.kept:
            var = estimate(g.entered.var, len(g.values), worked.unbiased)
            found.append((g.name, Pair(g.entered.mean, var), g.kept))
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


def _use(page: Page) -> Facts:
    """Say what an output depends on in both modes, and what follows for decoding."""
    train, evaluated = page.sees_train, page.sees_eval
    facts = []
    future = "unknown"
    if train is not None and evaluated is not None:
        facts.append(("train(): depends on", train.in_words()))
        facts.append(("eval(): depends on", evaluated.in_words()))
        future = "a token never sees later ones" + ("; other samples are seen" * train.others)
        if evaluated.later:
            future = "a token sees later ones of its sample, in training and in eval"
        elif train.later:
            future = (
                "in training a token sees later ones, in eval it does not, so a decoder sees "
                "future tokens during training"
            )
    if page.worked is not None:
        text = "nothing: outputs are equal to the bit" if page.worked.same_in_eval else "outputs"
        if train != evaluated:
            kept = ": batch statistics in train(), running ones in eval()"
            text = "outputs" + (kept if page.running else "")
        facts.append(("the modes differ in", text))
    one = "no: a token's output waits for the other tokens it depends on"
    if page.incremental:
        one = "yes: no other token is needed, in any mode"
        if page.running:
            one = "yes in eval, from running statistics; never in training"
    return [*facts, ("one token at a time", one), ("the future", future)]


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


def show_side_by_side(pages: Sequence[Page], *, across: int = 3) -> None:
    """Print what differs between norms, one column each, a few at a time."""
    for start in range(0, len(pages), across):
        part = pages[start : start + across]
        compared = [_comparison(page) for page in part]
        heading("Side by side")
        rows = [[name, *(facts[name] for facts in compared)] for name in compared[0]]
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
        "one at a time": _one_at_a_time(page),
        "padding counts": f"with {', '.join(moving)}" if moving else "no",
        "parameters": states(page.parameters),
    }


def _sees(page: Page, what: str) -> str:
    if page.sees_train is None or page.sees_eval is None:
        return "-"
    train, evaluated = getattr(page.sees_train, what), getattr(page.sees_eval, what)
    return ("yes" if evaluated else "in training") if train else "no"


def _one_at_a_time(norm: Page | Row) -> str:
    return ("in eval" if norm.running else "yes") if norm.incremental else "no"


def show_all(found: Sequence[Row]) -> None:
    """Print a table of all norms, from those that pool over nothing to those over all axes."""
    heading("A norm is a set of axes to pool over")
    say("In a block of samples x tokens x features, the values that are pooled share")
    say("one mean and one variance.\n")
    rows = [
        [
            *(row.name, axes_in_words(row.pools), "yes" if row.running else "no"),
            *(_one_at_a_time(row), row.parameters, row.buffers),
        ]
        for row in found
    ]
    columns = ["norm", "pools over", "running", "stepwise", "parameters", "buffers"]
    print_table(columns, rows, numeric=columns[-2:])
    say("\nD: the width; running: statistics kept for eval; stepwise: a token at a time")
    say("Next: normlab explain ln bn        both in full, then side by side")


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
    rows = []
    for page in pages:
        pooled = axes_in_words(page.pools, OF_IMAGES) + (" of a group" if page.changed else "")
        rows.append([page.name, paper.get(page.name, "-"), pooled, _TORCH.get(page.name, "-")])
    notes = [f"{p.name} is drawn with {k}={v}" for p in pages for k, v in p.changed.items()]
    notes.append("the paper: Wu and He 2018, figure 2")
    print_table(["norm", "in the paper", "pools over", "in torch"], rows, notes=notes)
    say("Next: normlab train task=digits norm=gn_sample   a residual network with it")
