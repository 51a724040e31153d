"""The questions that `normlab.inspect(model, batches)` asks by default.

Movements of an output are RMS(y' - y) / RMS(y) over the real positions of one row, in float64.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from normlab.any_model.calls import inside, record
from normlab.any_model.culprit import locate
from normlab.any_model.examination import LEAK, Examination, Moved
from normlab.any_model.example import (
    Example,
    ModelFailed,
    Overlap,
    call,
    looked_at,
    tensors,
)
from normlab.any_model.finding import Finding, Table, question
from normlab.any_model.movement import moved, percent
from normlab.any_model.norms import FoundNorm
from normlab.any_model.restore import unchanged
from normlab.errors import UserError

HARM = 1e-3
"""The movement above which a leak is called broken."""
BLIND = 1e-4
"""The movement that float32 rounding can cause or hide, on a device without float64."""


@question("norms")
def norms(about: Examination) -> Finding:
    """What does each norm pool over, and does that agree with its name?

    One value of the norm's recorded input is changed by 1000 times its RMS. The norm pools over
    the axes along which other outputs move too, in training and in evaluation. A norm is any module
    that pools and whose output has the input's shape and hardly changes if the input is doubled.
    """
    found = about.norms
    if not found:
        return Finding.none("a forward pass calls no norm")
    wrong = [norm for norm in found if norm.disagrees]
    kinds = Counter(f"{norm.kind} over {norm.pools}" for norm in found)
    shown = "; ".join(f"{number} {words}" for words, number in kinds.most_common())
    count, near = (sum(norm.gains[i] for norm in found if norm.gains) for i in (0, 1))
    shown += f"; {near} of {count} gains are near 0" * bool(near)
    more = f"; {len(wrong) - 1} more differ from their names" * (len(wrong) > 1)
    return Finding(
        wrong[0].disagrees + more if wrong else f"names and behavior agree: {shown}",
        {"norms": [asdict(norm) for norm in found]},
        table(found),
        verdict="look" if wrong else "fine",
        value=float(len(wrong)),
        threshold=0.0,
        module=wrong[0].name if wrong else None,
    )


def table(found: Sequence[FoundNorm]) -> Table:
    """Return one row per group of norms with the same class, pooled axes and eps."""
    groups: dict[tuple[Any, ...], list[FoundNorm]] = {}
    for norm in found:
        groups.setdefault((norm.kind, norm.pools, norm.eps), []).append(norm)
    rows = []
    for (kind, pools, eps), group in groups.items():
        count, near = (sum(n.gains[i] for n in group if n.gains) for i in (0, 1))
        share = f"{near} of {count}" if count else "-"
        eps = "-" if eps is None else f"{eps:g}"
        rows.append((kind, len(group), pools, eps, share, group[0].name or "the model"))
    return Table(("norm", "number", "pools over", "eps", "gains near 0", "first"), rows)


@question("forward")
def forward(about: Examination) -> Finding:
    """Is the forward pass repeatable and free of NaN, and does it leave its inputs unchanged?

    A row is run twice. If the outputs differ or have NaN, no other question is asked, except
    `statistics` after NaN.
    """
    row, y = about.alone, about.output(about.alone)
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
    if moved(again, y) > 0 and (value := about.moved(replace(row)).wide) > LEAK:
        path, sentence = locate(about, row, row, "random numbers")
        text = f"the output moves by {size(value)} from one run to the next: {sentence}"
        return Finding(text, verdict="broken", value=value, threshold=LEAK, module=path)
    if changed:
        return Finding(f"changes its input {changed[0]} in place", verdict="look")
    return Finding("repeats exactly", verdict="fine", value=0.0, threshold=LEAK)


def size(value: float) -> str:
    """Format a movement: in percent if it is large, otherwise as a power of ten."""
    if value in (0, HARM):
        return f"{100 * value:g} %" if value else "0"
    return percent(value) if value >= 1e-4 else f"{value:.0e}".replace("e-0", "e-")


def leak(
    about: Examination,
    found: Mapping[str, Moved],
    variants: Mapping[str, Example],
    seen: str,
    how: str,
    base: Example | None = None,
) -> Finding:
    """Return the finding on variants that should not move the output, and the module at fault.

    `found` has the movements by name, `seen` is what the output should not depend on, and `how`
    says what was compared. The module is found by comparing the variant of the largest movement
    with the `base`, by default row 0 alone.
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
        # with only one length, the usual values are the base, so the batch decides
        broken = broken and (usual or ("padded" not in found and about.example.has_padding))
        under = "" if usual else ", with unusual values under the padding"
    path, sentence = locate(about, variants[worst], base or about.alone, seen)
    limit = HARM if broken else limit
    return Finding(
        f"the output moves by {size(value)} (limit {size(limit)}){under}; {sentence}. {how}",
        values,
        verdict="broken" if broken else "look",
        value=value,
        threshold=limit,
        module=path,
    )


@question("padding")
def padding(about: Examination) -> Finding:
    """Does padding move the output at real tokens?

    Let y be the output for a row alone, and y' the output at the same positions when the row is
    padded by half its length (at least 8), on the mask's side, with the batch's own padding values
    and with others. If the model accepts only one length, a shorter row is padded to it: y then has
    the usual values under the padding, and y' has others.
    """
    example, n = about.example, about.example.pads
    if not example.length:
        return Finding.none("the inputs have no token axis, so nothing is padded")
    if not example.kind:
        return Finding.none("no input marks padding; name the one that does with mask=")
    base, how = None, f"One row of {example.length:,} positions, alone and padded by {n:,}"
    variants = {
        "padded": example.padded(n),
        "padded by other values": example.padded(n, other=True),
    }
    try:
        found = {name: about.moved(variant) for name, variant in variants.items()}
    except ModelFailed:
        if example.length <= n:
            raise
        short = example.cut(example.tokens, 0, example.length - n)
        overlap = Overlap(example.side, example.length, short.length)
        base, variant = (replace(short.padded(n, other=o), overlap=overlap) for o in (False, True))
        variants = {"short, padded by other values": variant}
        found = {name: about.moved(variant, base) for name in variants}
        how = f"One row of {short.length:,} positions, padded by {n:,}; longer rows fail"
    if base is None and max(each.wide for each in found.values()) <= LEAK:
        with suppress(UserError):
            found["shortest row in its batch"] = about.rounding()
    return leak(about, found, variants, "padding", how, base)


@question("batch_mates")
def batch_mates(about: Examination) -> Finding:
    """Do the other rows of the batch move a row's output?

    Let y be the output for a row in its batch, and y' its output with other values in all other
    rows, or alone.
    """
    batch, rows = about.example, about.example.size
    found = {"other rows": about.moved(batch.with_other_rows(), batch), "alone": about.moved(batch)}
    if about.output(about.alone).shape == about.shape:
        return Finding.none("the output has no batch axis")
    how = f"One row alone, among {rows}, and among {rows} with other values"
    variants = dict.fromkeys(found, batch.cut(batch.rows, 0, 2))
    return leak(about, found, variants, "other rows", how)


@question("future")
def future(about: Examination) -> Finding:
    """Do later tokens move the output at earlier positions of a causal model?

    Let y be the output at a row's first half, and y' with other tokens in the second half.
    In an encoder-decoder these are the decoder's tokens, if the batch has `decoder_input_ids`.
    """
    n, shape = about.example.steps, about.output(about.alone).shape
    if about.causal is False:
        return Finding.none("the model is not causal")
    if not (decoder := about.example.decoder):
        if getattr(getattr(about.model, "config", None), "is_encoder_decoder", False):
            return Finding.none("the decoder's tokens are not given; add decoder_input_ids")
        if about.causal is None and not is_causal(about.model):
            return Finding.none(
                "nothing says that the model is causal; if it is, say causal=True or --causal"
            )
    if n < 2 or n not in shape:
        return Finding.none(f"the output {[*shape]} has no axis of {n} positions")
    whose = "decoder positions" if decoder else "positions"
    how = f"The first {n // 2} {whose}, with other tokens in the {n - n // 2} after them"
    variants = {"later tokens": about.example.with_later_tokens(n // 2)}
    found = {name: about.moved(variant) for name, variant in variants.items()}
    return leak(about, found, variants, "later tokens", how)


def is_causal(model: nn.Module) -> bool:
    """Return whether a model's config, class name or attention marks it as causal."""
    config = getattr(model, "config", None)
    named = re.search("CausalLM|LMHead", type(model).__name__) is not None
    attends = any(getattr(module, "is_causal", False) is True for module in model.modules())
    return named or attends or getattr(config, "is_decoder", False) is True


@question("modes")
def modes(about: Examination) -> Finding:
    """Does training mode, without dropout, move the output? Does padding enter norm statistics?

    Only modules that keep running statistics are set to training mode, so everything random
    (dropout, layer drop, SpecAugment) stays off. Whether padding enters a norm's statistics is
    tested on the input that the norm gets for a padded row. In training, batch norm depends on the
    other rows by design.
    """
    keeping = [m for m in about.model.modules() if any("running_" in b for b in m._buffers)]
    text, value = "no norm keeps statistics, so only randomness differs in training", 0.0
    if keeping:
        about.moved(about.example)  # caches the output in eval mode
        with unchanged(about.model):
            for module in keeping:
                module.training = True
            value = about.moved(replace(about.example), about.example).wide
        norms = "1 norm uses" if len(keeping) == 1 else f"{len(keeping)} norms use"
        text = f"training mode moves the output by {size(value)}: {norms} batch statistics"
    given = {"training": value}
    for norm in about.norms if about.example.has_padding else []:
        if norm.training and norm.training.padding and not norm.evaluation.padding:
            words = f"{norm.name}: {norm.kind}, includes padding in its statistics in training"
            return Finding(f"{words}; {text}", given, verdict="look", module=norm.name)
    return Finding(f"{text}, by design", given, verdict="fine", value=0.0, threshold=LEAK)
