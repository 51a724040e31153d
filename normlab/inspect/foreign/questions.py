"""Do padding, the other rows, later tokens or the training mode move a model's output?

All values are RMS(y' - y) / RMS(y) over the real positions of one row, computed in float64.
"""

import re
from collections.abc import Mapping
from contextlib import suppress

import torch
from torch import nn

from normlab.inspect.foreign.calls import inside, record
from normlab.inspect.foreign.example import ModelFailed, call, looked_at, tensors
from normlab.inspect.foreign.locate import locate
from normlab.inspect.foreign.subject import LEAK, Foreign, Moved, moved
from normlab.inspect.foreign.unchanged import unchanged
from normlab.inspect.model import percent
from normlab.inspect.question import Finding, question

HARM = 1e-3
"""The movement above which a leak is called broken."""
BLIND = 1e-4
"""What rounding in float32 can hide on a device without float64."""


def size(value: float) -> str:
    """Format a movement: in percent if it is large, otherwise as a power of ten."""
    if value in (0, HARM):
        return f"{100 * value:g} %" if value else "0"
    return percent(value) if value >= 1e-4 else f"{value:.0e}".replace("e-0", "e-")


def leak(
    about: Foreign,
    found: Mapping[str, Moved],
    seen: str,
    how: str,
    *,
    variant: str | None = None,
    base: str = "alone",
) -> Finding:
    """Return the finding about variants that should not move, with the module that moves them.

    `found` has the movements by variant, `seen` is what the output should not depend on, and `how`
    says what was compared. The module is found by comparing a variant, by default the one that
    moves most, with the `base`.
    """
    worst = max(found, key=lambda name: found[name].wide)
    value, limit = found[worst].wide, BLIND if about.blind else LEAK
    values = {name: vars(each) for name, each in found.items()}
    if value <= limit:
        most = max(found.values(), key=lambda each: each.narrow)
        at = f" and changes the argmax at {percent(most.argmax)} of positions" * bool(most.argmax)
        where = "a leak this small needs float64 to be seen" if about.blind else "no leak"
        text = f"{where}: {size(value)} (limit {size(limit)}); {about.dtype} rounding moves the "
        text += f"output by {size(most.narrow)}{at}. {how}"
        return Finding(text, values, verdict="fine", value=value, threshold=limit)
    broken, under = value > HARM, ""
    if "other values" in worst:  # they do harm only if the usual values under padding do too
        usual = "padded" in found and found["padded"].wide > HARM
        # a model that accepts a single length was not asked about its usual values
        broken = broken and (usual or ("padded" not in found and about.example.has_padding))
        under = "" if usual else ", with unusual values under the padding"
    path, sentence = locate(about, variant or worst, base, seen)
    limit = HARM if broken else limit
    return Finding(
        f"the output moves by {size(value)} (limit {size(limit)}){under}; {sentence}. {how}",
        values,
        verdict="broken" if broken else "look",
        value=value,
        threshold=limit,
        module=path,
    )


@question("forward", of="module")
def forward(about: Foreign) -> Finding:
    """Is the forward pass repeatable and free of NaN, and does it leave its inputs unchanged?

    A row is run twice. If the outputs differ or have NaN, no other question is asked, except
    `statistics` after NaN.
    """
    y, row = about.output("alone"), about.example.alone()
    if bool(y.isnan().any()):
        calls, _ = record(about.model, row, about.forward)
        odd = [each for each in calls if any(bool(x.isnan().any()) for x in tensors(each.output))]
        innermost = (a.name for a in odd if not any(inside(b.name, a.name) for b in odd))
        path = next(innermost, None)
        text = f"the output has NaN at {percent(float(y.isnan().double().mean()))} of its entries"
        return Finding(f"{text}, first in {path or 'the model'}", verdict="broken", module=path)
    given = row.change(row.content, lambda _, x: x.clone())
    with torch.no_grad():
        again = looked_at(call(about.model, given, about.forward, copies=False))
    changed = [k for k in row.content if not torch.equal(given.values[k], row.values[k])]
    if moved(again, y) > 0 and (value := about.moved("again").wide) > LEAK:
        path, sentence = locate(about, "again", "alone", "random numbers")
        text = f"the output moves by {size(value)} from one run to the next: {sentence}"
        return Finding(text, verdict="broken", value=value, threshold=LEAK, module=path)
    if changed:
        return Finding(f"changes its input {changed[0]} in place", verdict="look")
    return Finding("repeats exactly", verdict="fine", value=0.0, threshold=LEAK)


@question("padding", of="module")
def padding(about: Foreign) -> Finding:
    """Does padding move the output at real tokens?

    Let y be the output for a row alone, and y' the output at the same positions when the row is
    padded by half its length (at least 8), on the mask's side, with the batch's own padding values
    and with others. If the model accepts a single length, a shorter row is padded to it: y is then
    with the usual padding, y' with other values.
    """
    example, n = about.example, about.pads
    if not example.length:
        return Finding.none("the inputs have no token axis, so nothing is padded")
    if not example.kind:
        return Finding.none("no input marks padding; name the one that does with mask=")
    base, how = "alone", f"One row of {example.length:,} positions, alone and padded by {n:,}"
    names = ("padded", "padded by other values")
    try:
        found = {name: about.moved(name) for name in names}
    except ModelFailed:
        if example.length <= n:
            raise
        base, worst = (f"short, {name}" for name in names)
        found = {worst: about.moved(worst, base)}
        how = f"One row of {example.length - n:,} positions, padded by {n:,}; longer rows fail"
    if base == "alone" and max(each.wide for each in found.values()) <= LEAK:
        with suppress(ValueError):
            found["shortest row in its batch"] = about.rounding()
    return leak(about, found, "padding", how, base=base)


@question("batch_mates", of="module")
def batch_mates(about: Foreign) -> Finding:
    """Do the other rows of the batch move a row's output?

    Let y be the output for a row in its batch, and y' its output with other values in all other
    rows, or alone.
    """
    found = {"other rows": about.moved("other rows", "batch"), "alone": about.moved("batch")}
    if about.output("alone").shape == about.shapes["batch"]:
        return Finding.none("the output has no batch axis")
    rows = about.example.size
    how = f"One row alone, among {rows}, and among {rows} with other values"
    return leak(about, found, "other rows", how, variant="two rows")


@question("future", of="module")
def future(about: Foreign) -> Finding:
    """Do later tokens move the output at earlier positions of a causal model?

    Let y be the output for the first half of a row's positions, y' with other tokens in the second.
    In an encoder-decoder these are the decoder's tokens, if the batch has `decoder_input_ids`.
    """
    n, shape = about.example.steps, about.output("alone").shape
    if about.causal is False:
        return Finding.none("the model is not causal")
    if not (decoder := about.example.decoder):
        if getattr(getattr(about.model, "config", None), "is_encoder_decoder", False):
            return Finding.none("the decoder's tokens are not given; add decoder_input_ids")
        if about.causal is None and not is_causal(about.model):
            return Finding.none("nothing says that the model is causal; if it is, pass causal=True")
    if n < 2 or n not in shape:
        return Finding.none(f"the output {[*shape]} has no axis of {n} positions")
    whose = "decoder positions" if decoder else "positions"
    how = f"The first {n // 2} {whose}, with other tokens in the {n - n // 2} after them"
    return leak(about, {"later tokens": about.moved("later tokens")}, "later tokens", how)


def is_causal(model: nn.Module) -> bool:
    """Return whether a model's config, class name or attention marks it as causal."""
    config = getattr(model, "config", None)
    named = re.search("CausalLM|LMHead", type(model).__name__) is not None
    attends = any(getattr(module, "is_causal", False) is True for module in model.modules())
    return named or attends or getattr(config, "is_decoder", False) is True


@question("modes", of="module")
def modes(about: Foreign) -> Finding:
    """Does training mode, without dropout, move the output, and does padding enter its statistics?

    Only modules that keep running statistics are set to training mode, so everything random
    (dropout, layer drop, SpecAugment) stays off. Whether padding enters a norm's statistics is
    tested on the input that the norm gets for a padded row. In training, batch norm depends on the
    other rows by design.
    """
    keeping = [m for m in about.model.modules() if any("running_" in b for b in m._buffers)]
    text, value = "no norm keeps statistics, so only randomness differs in training", 0.0
    if keeping:
        about.moved("batch")  # caches its output in eval mode
        with unchanged(about.model):
            for module in keeping:
                module.training = True
            value = about.moved("in training", "batch").wide
        norms = "1 norm uses" if len(keeping) == 1 else f"{len(keeping)} norms use"
        text = f"training mode moves the output by {size(value)}: {norms} batch statistics"
    given = {"training": value}
    for norm in about.norms if about.example.has_padding else []:
        if norm.training and norm.training.padding and not norm.evaluation.padding:
            words = f"{norm.name}: {norm.kind}, includes padding in its statistics in training"
            return Finding(f"{words}; {text}", given, verdict="look", module=norm.name)
    return Finding(f"{text}, by design", given, verdict="fine", value=0.0, threshold=LEAK)
