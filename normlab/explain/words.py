"""Decides the sentences of a page: plain words for its facts, none keyed on an option's name."""

import re
from collections.abc import Sequence

from normlab.explain.block import AXES, NAMES, axes_in_words
from normlab.explain.cost import Work
from normlab.explain.documents import Saying
from normlab.explain.outlier import Outlier
from normlab.explain.padding import Padding
from normlab.explain.page import Page
from normlab.explain.subject import STEPS, WIDTH
from normlab.explain.tables import Table
from normlab.explain.worked import Group, Worked

_FORMULAS = {
    "standardize": ("(x - mean) / sqrt(var + eps)", "mean and var of the group (var over n)"),
    "scale": ("x / sqrt(mean(x^2) + eps)", "mean square of the group; no mean is subtracted"),
}
_AXES: dict[str, str] = dict(zip(AXES, NAMES, strict=True))


def number(value: float) -> str:
    """Write a figure with two decimals, and no minus before zero."""
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text


def numbers(values: Sequence[float]) -> str:
    """Write input values, as short as they are."""
    return " ".join(f"{value:g}" for value in values)


def pooling(page: Page) -> str:
    """Say over what is pooled, and into how many groups that cuts the documents' tensor."""
    if not page.pools:
        return "Pools over nothing: every value is on its own, and there are no statistics."
    size = len(page.pooled)
    groups = f"{page.groups} groups of {size} values" if page.groups > 1 else f"all {size} values"
    text = f"Pools over {axes_in_words(page.pools)}: {groups}"
    if page.narrower:
        text += ", smaller than the axes alone would make them"
    return f"{text}.{_changes(page)}{_shown_at(page)}"


def _changes(page: Page) -> str:
    default = {setting.name: setting.value for setting in page.settings}
    return "".join(
        f" {key}={default[key]} does not fit a width of {WIDTH}: shown with {key}={value}."
        for key, value in page.changed.items()
    )


def _shown_at(page: Page) -> str:
    if not page.scheduled:
        return ""
    at = f"step {page.step} of {STEPS:,}" if page.step else "the start"
    return f" It changes as training goes on: shown at {at}."


def legend(page: Page, *, thick: str) -> str:
    """Say what the picture shows."""
    if not page.pools:
        return "The value marked * comes out by itself."
    return f"{thick}: what is pooled together with the value marked *."


def formula(page: Page) -> list[tuple[str, str]]:
    """Give the formula as found from the outputs, and the source as the module states it."""
    facts = []
    if page.worked is not None and page.worked.kind in _FORMULAS:
        core, where = _FORMULAS[page.worked.kind]
        learned = [table.name for table in page.parameters]
        scaled = f"weight * {core}" if "weight" in learned else core
        facts.append(("y =", f"{scaled} + bias" if "bias" in learned else scaled))
        facts.append(("", f"{where}; the outputs below agree with it"))
    elif page.worked is not None and page.worked.kind == "identity":
        facts.append(("y =", "x"))
    facts.append(("source", _unfolded(page.docstring)))
    if page.forward:
        facts.append(("", page.forward))
    facts.append(("module", page.target))
    return facts


def _unfolded(docstring: str) -> str:
    """Join the lines of each paragraph; lines that are set in, such as formulas, stay."""
    text = re.sub(r"(?<=\S)\n(?=\S)", " ", docstring)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def line(group: Group) -> str:
    """Write what the module does to the values of a group, as read off its outputs."""
    if group.line is None:
        return "no straight line of x"
    center, divisor = number(group.line.center), number(group.line.divisor)
    if center == "0.00":
        return f"x / {divisor}"
    return f"(x - {center}) / {divisor}".replace("- -", "+ ")


def running(page: Page, worked: Worked) -> str:
    """Say how running statistics come about."""
    if not worked.update_holds or worked.momentum is None:
        return "After one batch, starting from mean 0 and variance 1:"
    step = f"{worked.momentum:g}"
    return (
        f"running = (1 - {step}) * before + {step} * batch, from mean 0 and variance 1. One batch "
        f"moves them {worked.momentum:.0%} of the way, so eval differs from train above."
    )


def padded(padding: Padding) -> str:
    """Say which padding was added, and to whom it matters."""
    what = "Sample 2 loses its last token; zeros stand there as padding (lengths 3 and 2)."
    if not padding.padded:
        moved = any(treatment.moves for treatment in padding.treatments)
        return f"{what} " + (
            "Real tokens come out differently, though no padding is in their group."
            if moved
            else "No group holds a real and a padded token, so every real token comes out as "
            "before, whatever stands at the padding and however much of it there is (tried)."
        )
    return (
        f"{what} In the group of {padding.group}: real {numbers(padding.real)}, "
        f"padding {numbers(padding.padded)}. The module's mean and variance of it, and the output "
        f"of its first real value:"
    )


def padding_notes(padding: Padding) -> list[str]:
    """Explain the columns on 1 2 3 4 5, and what each treatment does."""
    notes = ["1..5: the values 1 2 3 4 5 and five zeros of padding, along an axis of tokens."]
    known = {t.five and (number(t.five.mean), number(t.five.var)) for t in padding.treatments}
    if ("1.50", "3.25") in known:
        notes.append(
            "Counted, padding turns mean 3 into 1.5 and variance 2 into 3.25 (the figures of "
            "tensorflow issue 30161)."
        )
    notes.append(
        "moves real tokens: whether other or more padding changes any real output (tried)."
    )
    return notes


def outlier_notes(outlier: Outlier) -> list[str]:
    """Say what the outlier does to attention."""
    return [
        "D2's sentence, alone in its batch, in train mode. Attention: softmax of "
        "x_1 x_j / sqrt(4), where `I` looks, with the vectors as queries and keys.",
        f"Slope of the softmax, 1 - sum p^2 (0: saturated, no gradient): "
        f"{number(outlier.slope_before)} before, {number(outlier.slope_after)} after.",
    ]


def use(page: Page) -> list[tuple[str, str]]:
    """Say what an output depends on in both modes, and what follows for decoding."""
    facts = []
    if page.sees_train is not None and page.sees_eval is not None:
        facts.append(("train(): depends on", page.sees_train.in_words()))
        facts.append(("eval(): depends on", page.sees_eval.in_words()))
    if page.worked is not None:
        facts.append(("the modes differ in", _modes(page, page.worked)))
    facts += [("one token at a time", _one_at_a_time(page)), ("the future", _future(page))]
    if page.keeps_order is not None:
        kept = [f"{_AXES[axis]}s {'yes' if on else 'no'}" for axis, on in page.keeps_order.items()]
        facts.append(("keeps the order of", ", ".join(kept) + " (by trial, with weight 1)"))
    return facts


def _modes(page: Page, worked: Worked) -> str:
    if page.sees_train != page.sees_eval:
        text = "outputs: the batch gives the statistics in train(), the running ones in eval()"
        return text if page.running else "outputs"
    return "nothing: outputs are equal to the bit" if worked.same_in_eval else "outputs"


def _one_at_a_time(page: Page) -> str:
    if not page.incremental:
        return "no: a token's output waits for the other tokens it depends on"
    if page.running:
        return "yes in eval, from running statistics; never in training"
    return "yes: no other token is needed, in any mode"


def _future(page: Page) -> str:
    if page.sees_train is None or page.sees_eval is None:
        return "unknown"
    if not page.sees_train.later:
        also = "; other samples are seen" if page.sees_train.others else ""
        return f"a token never sees later ones{also}"
    if page.sees_eval.later:
        return "a token sees later ones of its sample, in training and in eval"
    return "in training a token sees later ones, in eval it does not: a decoder trains on a leak"


def upkeep(page: Page) -> list[tuple[str, str]]:
    """Say what is stored, what the config sets, and what a token costs."""
    facts = [
        ("parameters", _tables(page.parameters)),
        ("buffers", _tables(page.buffers)),
        ("settings", _settings(page)),
    ]
    if page.cost is not None:
        train, evaluated = work(page.cost.train), work(page.cost.eval)
        alike = train == evaluated
        facts.append(("a token in training", train))
        facts += [] if alike else [("a token in eval", evaluated)]
        facts.append(("because (derived)", " ".join(page.cost.why)))
    return facts


def _settings(page: Page) -> str:
    texts = []
    for setting in page.settings:
        value = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
        others = [name for name in setting.allowed if name != setting.value]
        also = f" (or {', '.join(others)})" if others else ""
        texts.append(f"{setting.name}={value}{also}")
    return ", ".join(texts) or "none"


def _tables(tables: Sequence[Table]) -> str:
    return ", ".join(f"{table.name} {table.shape}" for table in tables) or "none"


def work(work: Work) -> str:
    """Write the work of a token in units of its width D."""
    operations = "?" if work.operations is None else _times(work.operations)
    reads, writes = _times(work.reads), _times(work.writes)
    return f"{reads} values read, {writes} written, {operations} adds or multiply-adds"


def _times(count: int) -> str:
    return "0" if count == 0 else "D" if count == 1 else f"{count} D"


def sayings(found: Sequence[Saying]) -> list[tuple[str, str]]:
    """Write the documents' sentences with their places."""
    return [
        (item.place, f"{item.says}\n{item.words}" + (f"\n{item.note}" if item.note else ""))
        for item in found
    ]


def comparison(page: Page) -> dict[str, str]:
    """Return the facts that tell norms apart, in few words each."""
    worked, cost = page.worked, page.cost
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
        "sees later tokens": _yes(page, "later"),
        "sees other samples": _yes(page, "others"),
        "one at a time": ("in eval" if page.running else "yes") if page.incremental else "no",
        "padding counts": f"with {', '.join(moving)}" if moving else "no",
        "parameters": _tables(page.parameters),
        "work a token, train": _times_of(cost.train.operations) if cost else "-",
        "work a token, eval": _times_of(cost.eval.operations) if cost else "-",
    }


def _times_of(count: int | None) -> str:
    return "-" if count is None else _times(count)


def _yes(page: Page, what: str) -> str:
    if page.sees_train is None or page.sees_eval is None:
        return "-"
    train, evaluated = getattr(page.sees_train, what), getattr(page.sees_eval, what)
    return ("yes" if evaluated else "in training") if train else "no"
