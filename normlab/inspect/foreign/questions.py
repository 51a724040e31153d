"""Do padding, the other rows, later tokens or the training mode move a model's output?

All values are RMS(y' - y) / RMS(y) over the real positions of one row, computed in float64.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from normlab.inspect.foreign.calls import Call, record
from normlab.inspect.foreign.example import Fit, ModelFailed, call, looked_at, tensors
from normlab.inspect.foreign.locate import locate, sentence
from normlab.inspect.foreign.subject import HARM, LEAK, Foreign, Moved, moved
from normlab.inspect.foreign.unchanged import unchanged
from normlab.inspect.foreign.wide import can_widen, widened
from normlab.inspect.model import percent
from normlab.inspect.question import Finding, Verdict, question

BLIND = 1e-4
"""What rounding in float32 can hide on a device without float64."""


def size(value: float) -> str:
    """Format a movement: in percent if it is large, otherwise as a power of ten."""
    return percent(value) if value >= 1e-4 else f"{value:.0e}" if value else "0"


def leak(
    about: Foreign, found: Mapping[str, Moved], against: tuple[str, str], seen: str, how: str
) -> Finding:
    """Return the finding about variants that should not move, with the module that moves them.

    `found` has the movements by variant. The module is sought between the two variants `against`,
    of which the first is the worst one by default. `seen` is what no output should depend on.
    """
    worst = max(found, key=lambda name: found[name].wide)
    value, limit = found[worst].wide, LEAK if can_widen(about.example.device) else BLIND
    verdict: Verdict = "fine" if value <= limit else "look" if value <= HARM else "broken"
    if verdict == "broken" and worst == "padded by other values" and found["padded"].wide <= HARM:
        verdict = "look"  # nothing moves as long as padding has the usual values
    values = {name: vars(each) for name, each in found.items()}
    if verdict == "fine":
        most = max(found.values(), key=lambda each: each.narrow)
        at = f" and the largest entry at {percent(most.argmax)} of places" * bool(most.argmax)
        where = "no leak" if limit == LEAK else f"{about.dtype} cannot tell; no float64 here"
        text = (
            f"{size(value)} (limit {limit:.0e}), {where}; rounding in {about.dtype} moves it by "
            f"{size(most.narrow)}{at}. {how}"
        )
        return Finding(text, values, verdict=verdict, value=value, threshold=limit)
    threshold = HARM if verdict == "broken" else limit
    place = locate(about.pair(against[0] or worst, against[1], seen), LEAK)
    text = f"{size(value)} (limit {size(threshold)}), {worst}: {sentence(place)}. {how}"
    module = place.module if place else None
    return Finding(text, values, verdict=verdict, value=value, threshold=threshold, module=module)


@question("forward", of="module")
def forward(about: Foreign) -> Finding:
    """Does the forward pass repeat, without NaN, and leave its inputs as they are?

    A row is run twice. If the outputs differ, no other question has an answer.
    """
    y = about.output("alone")
    if not bool(y.isfinite().any()) or bool(y.isnan().any()):
        place = _first_nan(about)
        text = f"the output has NaN at {percent(float(y.isnan().double().mean()))} of its entries"
        return Finding(f"{text}, first from {place!r}", verdict="broken", module=place)
    given = about.variant("alone")
    given = given.change(given.content, lambda _, x: x.clone())
    with torch.no_grad():
        again = looked_at(call(about.model, given, about.forward, copies=False))
    changed = [
        str(key)
        for key in given.content
        if not torch.equal(given.values[key], about.variant("alone").values[key])
    ]
    if changed:
        return Finding(f"changes its input {changed[0]} in place", verdict="look")
    if moved(again, y) > 0 and (value := about.moved("again").wide) > LEAK:
        place = locate(about.pair("again", "alone", "random numbers"), LEAK)
        text = f"{size(value)} from one run to the next: {sentence(place)}"
        return Finding(text, verdict="broken", value=value, module=place.module if place else None)
    return Finding("repeats exactly", verdict="fine", value=0.0)


def _first_nan(about: Foreign) -> str | None:
    with torch.no_grad():
        calls, _ = record(about.model, about.variant("alone"), about.forward)
    inner = [each for each in calls if not any(True for _ in each.module.children())]
    for each in [*inner, *calls]:
        floats = [x for x in tensors(each.output) if x.is_floating_point()]
        if any(bool(x.isnan().any()) for x in floats):
            return each.name
    return None


@question("padding", of="module")
def padding(about: Foreign) -> Finding:
    """Does padding move the output at real tokens?

    Let y be the output for a row alone, y' its part at the same positions when the row is padded by
    half its length (at least 8), on the mask's side: with what the batch has there, and with other
    values. A model that takes rows of one length only gets a shorter row, and y is with padding.
    """
    example, n = about.example, about.pads
    if not example.length:
        return Finding.none("the inputs have no axis of tokens, so nothing is padded")
    if not example.kind:
        return Finding.none("no input marks padding; name the one that does with mask=")
    names, base = ("padded", "padded by other values"), "alone"
    how = f"One row of {example.length} positions, alone and padded by {n}"
    try:
        found = {name: about.moved(name) for name in names}
    except ModelFailed as error:
        if example.length <= 2 * 8:
            raise
        base = "short, padded"
        try:
            found = {name: about.moved(f"short, {name}", base) for name in names[1:]}
        except ModelFailed:
            raise error from None
        found = {f"short, {name}": each for name, each in found.items()}
        how = f"One row of {example.length - n} positions, padded by {n}; no longer row runs"
    return leak(about, found, ("", base), "padding", how)


@question("batch_mates", of="module")
def batch_mates(about: Foreign) -> Finding:
    """Do the other rows of the batch move a row's output?

    Let y be the output for a row in its batch; y' with other values in all other rows, and for the
    row alone.
    """
    rows = about.example.size
    found = {"other rows": about.moved("other rows", "batch"), "alone": about.moved("batch")}
    if about.output("alone").shape == about.shapes["batch"]:
        return Finding.none("the output has no axis of rows")
    how = f"One row alone, among {rows}, and among {rows} with other values"
    return leak(about, found, ("two rows", "alone"), "other rows", how)


@question("future", of="module")
def future(about: Foreign) -> Finding:
    """Do later tokens move the output at earlier positions of a causal model?

    Let y be the output for the first half of a row's positions, y' with other tokens in the second.
    """
    example, t = about.example, about.now
    causal = is_causal(about.model) if about.causal is None else about.causal
    if not causal:
        unknown = "nothing says that the model is causal; if it is, pass causal=True"
        return Finding.none(unknown if about.causal is None else "the model is not causal")
    if example.length < 2:
        return Finding.none("the inputs have no later tokens")
    if example.length not in about.output("alone").shape:
        shape = [*about.output("alone").shape]
        return Finding.none(f"the output {shape} has no axis of {example.length} positions")
    found = {"later tokens": about.moved("later tokens")}
    how = f"The first {t} positions, with other tokens in the {example.length - t} after them"
    return leak(about, found, ("", "alone"), "later tokens", how)


def is_causal(model: nn.Module) -> bool:
    """Return whether a model says itself that it is causal, by its config or attention."""
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        return False
    named = re.search("CausalLM|LMHead", type(model).__name__) is not None
    attends = [getattr(module, "is_causal", False) for module in model.modules()]
    return named or getattr(config, "is_decoder", False) is True or any(x is True for x in attends)


@question("modes", of="module")
def modes(about: Foreign) -> Finding:
    """Does training, without dropout, give another output, and does padding enter its statistics?

    Modules that keep running statistics are set to training mode. Each gets the input it has in the
    pass of a padded row, with other values under the padding; y is its output at real positions.
    That such a norm sees the other rows in training is by design.
    """
    keeping = {
        name: module
        for name, module in about.model.named_modules()
        if any("running_" in buffer for buffer, _ in module.named_buffers(recurse=False))
    }
    if not keeping:
        return Finding(
            "no module keeps running statistics, so training differs by dropout alone",
            verdict="fine", value=0.0, threshold=LEAK,
        )  # fmt: skip
    about.moved("batch")
    with _training(about, keeping.values()):
        value = about.moved("in training", "batch").wide
    text = f"training moves it by {size(value)}: {len(keeping)} norms use the batch's statistics"
    found = {"training": value, "padding": {}}
    if about.example.has_padding:
        calls = [_calls(about, name, keeping) for name in ("alone", "padded")]
        fit = about.fit("padded")
        with _training(about, keeping.values()), torch.no_grad(), widened():
            for former, given in zip(*calls, strict=True):
                moves = _padding_enters(former, given, fit)
                found["padding"][given.name] = max(moves, found["padding"].get(given.name, 0.0))
    worst = max(found["padding"], key=lambda name: found["padding"][name], default="")
    most = found["padding"].get(worst, 0.0)
    if most > LEAK:
        kind = type(keeping[worst]).__name__
        words = f"{worst}: {kind}, whose statistics in training include padding ({size(most)})"
        return Finding(
            f"{words}; {text}", found, verdict="look", value=most, threshold=LEAK, module=worst
        )
    return Finding(f"{text}, by design", found, verdict="fine", value=most, threshold=LEAK)


def _calls(about: Foreign, name: str, modules: Mapping[str, nn.Module]) -> list[Call]:
    with torch.no_grad(), widened():
        return record(
            about.model, about.variant(name), about.forward, lambda name, _: name in modules
        )[0]


@contextmanager
def _training(about: Foreign, modules: Iterable[nn.Module]) -> Iterator[None]:
    with unchanged(about.model):
        for module in modules:
            module.training = True
        yield


def _padding_enters(former: Call, given: Call, fit: Fit) -> float:
    """Return how far a module's output at real positions moves with what is under the padding."""
    (x, *rest), (x0, *_) = given.args, former.args
    other = 2 * x.roll(1, -1) + x.std()
    real, _ = fit(other, x0)
    real.copy_(fit(x, x0)[0])
    outputs = [next(tensors(given.module(each, *rest, **given.kwargs))) for each in (x, other)]
    y0 = next(tensors(former.output))
    return moved(*(fit(each, y0)[0] for each in reversed(outputs)))
