"""How `normlab explain` looks in a terminal: one norm, several side by side, all, and on images."""

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from normlab.commands._terminal import folded, print_prose, print_table
from normlab.inspect.axes import EXAMPLE, NAMES, OF_IMAGES, SHAPE, axes_in_words
from normlab.inspect.page import Page
from normlab.inspect.subject import LONG_RUN, WIDTH, Setting
from normlab.inspect.worked import DOCUMENT, Block, Group, Padding, Pair, Worked

Facts = list[tuple[str, str]]
_FORMULAS = {
    "standardize": ("(x - mean) / sqrt(var + eps)", "mean and var of the group (var over n)"),
    "scale": ("x / sqrt(mean(x^2) + eps)", "mean square of the group; no mean is subtracted"),
}
FIGURE = {
    "bn": "batch norm",
    "seqn": "layer norm",
    "in": "instance norm",
    "gn_sample": "group norm",
}
"""The four norms of the group norm paper's drawing: Wu and He 2018, figure 2."""
_TORCH = {"bn": "BatchNorm2d", "seqn": "GroupNorm(1, C)", "in": "InstanceNorm2d"}
_TORCH |= {"gn_sample": "GroupNorm(G, C)", "ln": "LayerNorm, channels last"}
_LABEL = 22


def show_all(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the overview."""
    _heading("A norm is a set of axes to pool over")
    print_prose(
        "In a block of samples x tokens x features, the values that are pooled share one mean and "
        "one variance."
    )
    rows = [
        [
            *(row["name"], axes_in_words(row["pools"]), "yes" if row["running"] else "no"),
            _one_at_a_time(row["incremental"], row["running"]),
            *(row["parameters"], row["buffers"]),
        ]
        for row in found
    ]
    columns = ["norm", "pools over", "running", "stepwise", "parameters", "buffers"]
    note = "D: the width; running: statistics kept for eval; stepwise: one token at a time"
    print()
    print_table(columns, rows, notes=[note], numeric=columns[-2:])
    print("Next: normlab explain ln bn        both in full, then side by side")


def show(page: Page) -> None:
    """Print the page of a norm."""
    print(f"{page.name}: {page.description}")
    print_prose(f"{_pooling(page)}")
    print()
    draw(page)
    print("Brackets: what shares its statistics with the value marked *.")
    _heading("What it computes")
    _list_facts(_formula(page))
    if page.refused:
        print_prose(f"The norm refuses the documents' numbers: {page.refused}")
    if page.worked is not None:
        _show_worked(page, page.worked)
    if page.padding is not None:
        _show_padding(page.padding)
    _heading("Training and eval, one token at a time")
    _list_facts(_use(page))
    _heading("What it keeps")
    settings = [f"{s.name}={str(s.value).lower()}{_alternatives(s)}" for s in page.settings]
    _list_facts(
        [
            ("parameters", _names(page.parameters)),
            ("buffers", _names(page.buffers)),
            ("settings", ", ".join(settings) or "none"),
        ]
    )
    print(f"\nTry it: normlab train norm={page.name}\n")


def _alternatives(setting: Setting) -> str:
    others = ", ".join(name for name in setting.allowed if name != setting.value)
    return f" (or {others})" if others else ""


def _names(shapes: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"


def _heading(text: str) -> None:
    Console(highlight=False).print(Text(f"\n{text}", style="bold"))


def _list_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and what is to be said of them, in two columns."""
    width = shutil.get_terminal_size().columns
    for name, text in facts:
        label = name.ljust(_LABEL)
        for line in text.splitlines():
            print("\n".join(folded(line, width, first=label, rest=" " * _LABEL)))
            label = " " * _LABEL


def draw(page: Page, names: Sequence[str] = NAMES) -> None:
    """Draw the block, one sheet per sample: `*` marks a value, brackets what is pooled with it."""
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
                if cell == EXAMPLE:
                    line.append(f"[*{value}]".center(5), style="bold reverse")
                elif cell in page.pooled:
                    line.append(f"[{value}]".center(5), style="bold")
                else:
                    line.append(value.center(5), style="dim")
        line.rstrip()
        Console(highlight=False).print(line)


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
        text += f" It changes during training: shown at {at}."
    return text


def _formula(page: Page) -> Facts:
    """Give the formula as found from the outputs, and the source as the module states it."""
    facts = []
    kind = "" if page.worked is None else page.worked.kind
    if kind in _FORMULAS:
        core, where = _FORMULAS[kind]
        scaled = f"weight * {core}" if "weight" in page.parameters else core
        facts.append(("y =", f"{scaled} + bias" if "bias" in page.parameters else scaled))
        facts.append(("", f"{where}; the outputs below agree with it"))
    elif kind == "identity":
        facts.append(("y =", "x"))
    joined = re.sub(r"(?<=\S)\n(?=\S)", " ", page.docstring)  # lines that are set in stay
    text = "\n".join(line.rstrip() for line in joined.splitlines() if line.strip())
    return [*facts, ("source", text), ("module", page.target)]


def _show_worked(page: Page, worked: Worked) -> None:
    _heading("On the documents' tensor")
    names = ["mean square"] if worked.kind == "scale" else ["mean", "var"]
    if page.pools:
        rows = [
            [g.name, _numbers(g.values), *_moments(Pair(g.mean, g.var), names), _line(g)]
            for g in worked.groups
        ]
        print_table(["group", "its values", *names, "comes out as"], rows, numeric=names)
        print()
    blocks, outs = [worked.train], ["out (the same in train and eval)"]
    if not worked.same_in_eval:
        blocks, outs = [worked.train, worked.eval], ["out in train", "out in eval"]
    rows = [
        [str(s + 1), str(t + 1), *(_token(block, s, t) for block in (worked.x, *blocks))]
        for s, sample in enumerate(worked.x)
        for t in range(len(sample))
    ]
    print_table(["sample", "token", "in", *outs], rows)
    found = [(g.name, g.entered, g.kept) for g in worked.groups if g.entered and g.kept]
    if not found or worked.start is None:
        return
    _heading("Running statistics, which eval takes in place of the batch")
    mean_square = not any(pair.mean for _, *pairs in found for pair in pairs)
    start = f"mean {worked.start.mean:g} and variance {worked.start.var:g}"
    if mean_square:
        start = f"a mean square of {worked.start.var:g}"
    share = "" if worked.momentum is None else f" with momentum {worked.momentum:g}"
    print_prose(f"After one batch{share}, starting from {start}:")
    names = ["mean square"] if mean_square else ["mean", "var"]
    columns = [f"{of} {name}" for of in ("batch", "running") for name in names]
    rows = [[name, *_moments(a, names), *_moments(b, names)] for name, a, b in found]
    notes = [] if mean_square else ["batch var: the estimate that enters, over n - 1 if unbiased"]
    print_table(["group", *columns], rows, notes=notes, numeric=columns)


def _number(value: float) -> str:
    """Write a value with two decimals, and no minus before zero."""
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _moments(pair: Pair | None, names: Sequence[str] = ("mean", "var")) -> list[str]:
    if pair is None:
        return ["-"] * len(names)
    if len(names) == 1:
        return [_number(pair.var + pair.mean**2)]
    return [_number(pair.mean), _number(pair.var)]


def _token(block: Block, sample: int, token: int) -> str:
    whole = all(float(v).is_integer() for s in block for t in s for v in t)
    return " ".join(f"{v:2.0f}" if whole else f"{_number(v):>5}" for v in block[sample][token])


def _line(group: Group) -> str:
    """Write what the module does to the values of a group, as read off its outputs."""
    if group.line is None:
        return "no straight line of x"
    center, divisor = _number(group.line.center), _number(group.line.divisor)
    if center == "0.00":
        return f"x / {divisor}"
    return f"(x - {center}) / {divisor}".replace("- -", "+ ")


def _show_padding(padding: Padding) -> None:
    _heading("Padding")
    what = "Sample 2 loses its last token and gets zeros there as padding (lengths 3 and 2)."
    if not padding.padded:
        same = (
            "No group holds both real and padded tokens, so real tokens have the same output "
            "whatever the padding's values and length (tried)."
        )
        other = "The output of real tokens changes, though no padding is in their group."
        moved = any(treatment.moves for treatment in padding.treatments)
        print_prose(f"{what} {other if moved else same}")
        return
    print_prose(
        f"{what} In the group of {padding.group}: real {_numbers(padding.real)}, padding "
        f"{_numbers(padding.padded)}. The module's mean and variance of it, and the output of its "
        "first real value:"
    )
    rows = [
        [t.name or "left out", *_moments(t.used), _number(t.out), "yes" if t.moves else "no"]
        for t in padding.treatments
    ]
    columns = ["padding", "mean", "var", "first out", "moves real tokens"]
    note = "moves real tokens: whether other or more padding changes any real output (tried)"
    print_table(columns, rows, notes=[note], numeric=columns[1:-1])


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


def show_side_by_side(pages: Sequence[Page]) -> None:
    """Print what differs between norms, one column each, three at a time."""
    for start in range(0, len(pages), 3):
        part = pages[start : start + 3]
        compared = [_comparison(page) for page in part]
        _heading("Side by side")
        rows = [[name, *(facts[name] for facts in compared)] for name in compared[0]]
        print_table(["", *(page.name for page in part)], rows)


def _comparison(page: Page) -> dict[str, str]:
    """Return the facts that distinguish norms, in few words each."""
    worked = page.worked
    group = worked.groups[0] if worked is not None and page.pools else None
    padding = page.padding.treatments if page.padding is not None else []
    moving = ", ".join(t.name or "yes" for t in padding if t.moves)
    return {
        "pools over": axes_in_words(page.pools),
        "groups": f"{page.groups} of {len(page.pooled)}" if page.pools else "-",
        "first group": _numbers(group.values) if group else "-",
        "mean, var": ", ".join(_moments(Pair(group.mean, group.var))) if group else "-",
        "first 1 becomes": _number(worked.train[0][0][0]) if worked is not None else "-",
        "... in eval": _number(worked.eval[0][0][0]) if worked is not None else "-",
        "running statistics": "yes" if page.running else "no",
        "sees later tokens": _sees(page, "later"),
        "sees other samples": _sees(page, "others"),
        "one at a time": _one_at_a_time(page.incremental, page.running),
        "padding counts": f"with {moving}" if moving else "no",
        "parameters": _names(page.parameters),
    }


def _sees(page: Page, what: str) -> str:
    if page.sees_train is None or page.sees_eval is None:
        return "-"
    train, evaluated = getattr(page.sees_train, what), getattr(page.sees_eval, what)
    return ("yes" if evaluated else "in training") if train else "no"


def _one_at_a_time(incremental: bool, running: bool) -> str:
    return ("in eval" if running else "yes") if incremental else "no"


def show_images(pages: Sequence[Page]) -> None:
    """Print each norm's pool in a block of images, and what the norms are called elsewhere.

    An image's pixels are the positions of a stream and its channels the features. What the paper
    calls layer norm is `seqn` here, over a whole image; `ln` is that of one pixel over its channels
    (ConvNeXt's).
    """
    _heading("2 images (N) of 3 pixels (H, W) and 4 channels (C, across)")
    print("Brackets: what shares its mean and variance with the value marked *.")
    for page in pages:
        print(f"\n{page.name}")
        draw(page, ("N", "H, W", "C"))
    print()
    rows = []
    for page in pages:
        axes = axes_in_words(page.pools, OF_IMAGES) + (" of a group" if page.changed else "")
        rows.append([page.name, FIGURE.get(page.name, "-"), axes, _TORCH.get(page.name, "-")])
    notes = [f"{p.name} is drawn with {k}={v}" for p in pages for k, v in p.changed.items()]
    notes.append("the paper: Wu and He 2018, figure 2")
    print_table(["norm", "in the paper", "pools over", "in torch"], rows, notes=notes)
    print("Next: normlab train task=digits norm=gn_sample   a residual network with it")
