"""Dependence of an output on the rest of its batch, later positions and other sentences."""

import copy
import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import percent, ratio
from normlab.findings.summary import Verdict
from normlab.inspection.recording import (
    MODES,
    ROUNDING,
    Pass,
    by_how_much,
    deviation,
    look,
    taking,
    watched,
)
from normlab.inspection.subject import Subject
from normlab.models.base import stacks
from normlab.probes.sites import real_values

SETS = 16
MATES = 31
SENTENCES = 8
NEGLIGIBLE = 1e-9  # relative to the derivative for the token itself, in float64
_WORDS = {"later": "later positions", "others": "other sentences"}


@question("batch_mates", of="model")
@torch.no_grad()
def batch_mates(subject: Subject) -> Finding:
    """Does a sentence's output depend on the rest of its batch?

    One training sentence is batched with sixteen different sets of 31 others. Over these sets s, at
    the sentence's real positions:

        values     RMS over s of x_s - mean(x), divided by the RMS of x, for each stack's output x
        attention  1/2 sum_keys |p_s - mean(p)|, the total variation distance of attention weights
                   p from their mean over sets, averaged over sets, heads and the sentence's
                   queries: the share of the attention that moves to other keys, from 0 to 1

    Both are measured with batch statistics, as in training, and as in eval. Dropout is off.
    """
    number = subject.number("train")
    if number < 3:
        return Finding.none(f"{number} training sentences are too few to vary the batch mates")
    generator = subject.generator("batch_mates")
    sentence, *others = generator.permutation(number).tolist()
    mates = min(MATES, number // 2)
    sets = [generator.choice(others, mates, replace=False).tolist() for _ in range(SETS)]
    values, attention = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    answers, most = [], dict[str, float]()
    for mode in MODES:
        batches = (subject.batch("train", [sentence, *chosen]) for chosen in sets)
        passes = [of_first(look(subject, batch, mode)) for batch in batches]
        values[mode], attention[mode] = changes_over_sets(passes)
        most[mode] = max(values[mode].values())
        answers.append(f"{by_how_much(most[mode])} in {mode}")
        if most[mode] >= ROUNDING and attention[mode]:
            answers[-1] += f" (attention {by_how_much(max(attention[mode].values()))})"
    training, in_eval = MODES
    rows = [
        (f"{what}, {name}", share, by[in_eval][name])
        for what, by in (("values", values), ("attention", attention))
        for name, share in by[training].items()
    ]
    lengths = subject.task.lengths("train")[sentence].tolist()
    figures = {"sentence": sentence, "lengths": lengths, "mates": mates, "sets": SETS}
    return Finding(
        f"other sentences change a sentence's values {', '.join(answers)}",
        {**figures, "values": values, "attention": attention},
        AnswerTable(("of the sentence", *MODES), rows),
        board={"mates": most[training]},
        verdict=verdict_by_mode(most, ROUNDING),
        value=max(most.values()),
        threshold=ROUNDING,
    )


def verdict_by_mode(most: Mapping[str, float], limit: float) -> Verdict:
    """Return `broken` for a dependence in eval, `look` for a dependence only in training.

    If a norm pools over the batch, the dependence in training is by design.
    """
    training, in_eval = (most[mode] >= limit for mode in MODES)
    return "broken" if in_eval else "look" if training else "fine"


Derivative = Mapping[str, float | None]
"""`own`, `later` and `others` of a stack, as `leak` defines them."""
Outputs = dict[str, Float[Tensor, "_ D"]]
Weights = dict[str, Float[Tensor, "H _ _"]]


def changes_over_sets(
    passes: Sequence[tuple[Outputs, Weights]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Return each output's deviation and each attention's total variation over sets."""
    outputs, weights = passes[0]
    values = {name: deviation([x[name] for x, _ in passes]) for name in outputs}
    return values, {name: total_variation([w[name] for _, w in passes]) for name in weights}


def of_first(forward: Pass) -> tuple[Outputs, Weights]:
    """Return each stack's output and each attention's weights for the batch's first sentence."""
    last = {name: end.all[0, end.valid[0]] for name, end in forward.outputs("stack").items()}
    return last, {
        name: attention_weights(each.query, each.key, each.visible)[:, each.real[0]]
        for name, each in forward.attentions.items()
    }


def attention_weights(
    query: Float[Tensor, "B H P K"],
    key: Float[Tensor, "B H S K"],
    visible: Bool[Tensor, "..."] | None,
) -> Float[Tensor, "H P S"]:
    """Return softmax(q k' / sqrt(K)) for the first sentence; masked keys get weight 0."""
    logits = query[0] @ key[0].transpose(-1, -2) / math.sqrt(query.shape[-1])
    if visible is not None:
        shown = visible.expand(*query.shape[:3], key.shape[2])[0]
        logits = logits.masked_fill(~shown, -torch.inf)
    return logits.softmax(-1)


def total_variation(weights: Sequence[Float[Tensor, "H P _"]]) -> float:
    """Return the mean over sets and rows of 1/2 sum |p - mean over sets of p|.

    If sets differ in their number of keys, missing keys count as padding with weight 0.
    """
    longest = max(rows.shape[-1] for rows in weights)
    padded_rows = [F.pad(rows.double(), (0, longest - rows.shape[-1])) for rows in weights]
    together = torch.stack(padded_rows)
    return float((together - together.mean(0)).abs().sum(-1).mean() / 2)


@question("leak", of="model")
def leak(subject: Subject) -> Finding:
    """Does the first position depend on later positions, or on other sentences of the batch?

    Let y_0 be a stack's output at position 0 of the first of eight sentences, and v a random
    projection. v y_0 is differentiated with respect to the embedded tokens e of each stack, before
    any norm on them (in a residual network, to the pixels):

        own     ||d(v y_0) / d e_0||             for its own token, in the same stack
        later   the same over its later tokens   divided by own; in the same stack
        others  the same over other sentences    divided by own; over all stacks

    These are Frobenius norms over real tokens, with batch statistics as in training and as in eval,
    without dropout, on a copy of the model in float64. Without any dependence the value is exactly
    0 or far below 1e-9, the smallest value that counts as a leak.

    A decoder's attention is causal, so later positions can only leak in through its norms:
    statistics over positions, or over the whole batch, tell position 0 about the tokens it is
    trained to predict. An encoder attends both ways and may depend on later positions.
    """
    number = subject.number("train")
    if number < 2:
        return Finding.none("there is no other sentence to depend on")
    generator = subject.generator("leak")
    picked = generator.permutation(number)[:SENTENCES].tolist()
    model = copy.deepcopy(subject.model).double().requires_grad_(False)
    seed = int(generator.integers(2**31))
    by_mode: dict[str, dict[str, Derivative]] = {}
    for mode in MODES:
        with taking(model, mode), torch.enable_grad(), watched(model, leaves=True) as forward:
            subject.losses(subject.batch("train", picked), model)
            stack_names = forward.outputs("stack")
            by_mode[mode] = {name: derivative(name, forward, seed) for name in stack_names}
    ways = {name: stack.both_ways for name, stack in stacks(subject.model).items()}
    shares = {
        mode: {stack: _sight(each, both_ways=ways[stack]) for stack, each in by_stack.items()}
        for mode, by_stack in by_mode.items()
    }
    most = {
        mode: max([0.0, *(x for leaks in by_stack.values() for x in leaks.values())])
        for mode, by_stack in shares.items()
    }
    answers = [f"in {mode} {_leaks_in_words(by_stack)}" for mode, by_stack in shares.items()]
    rows = [
        (stack, mode, "attends both ways" if ways[stack] else each["later"], each["others"])
        for mode, by_stack in by_mode.items()
        for stack, each in by_stack.items()
    ]
    columns = ("stack", "statistics", "by later positions", "by other sentences")
    values = {"sentences": len(picked), "attends_both_ways": ways, **by_mode}
    return Finding(
        "; ".join(answers),
        values,
        AnswerTable(columns, sorted(rows, key=lambda row: row[0])),
        verdict=verdict_by_mode(most, NEGLIGIBLE),
        value=max(most.values()),
        threshold=NEGLIGIBLE,
    )


def _sight(each: Derivative, *, both_ways: bool) -> dict[str, float]:
    """Return, by kind, how much a stack sees of the inputs that must be hidden from it."""
    kinds = {what: words for what, words in _WORDS.items() if not (both_ways and what == "later")}
    return {words: each[what] or 0.0 for what, words in kinds.items()}


def _leaks_in_words(by_stack: Mapping[str, Mapping[str, float]]) -> str:
    """Say what leaks into each stack, or that nothing leaks."""
    texts: list[str] = []
    for stack, shares in by_stack.items():
        leaks = [f"{what} ({percent(x)})" for what, x in shares.items() if x >= NEGLIGIBLE]
        texts += [f"the {stack} sees {' and '.join(leaks)}"] * bool(leaks)
    return ", ".join(texts) or "nothing leaks"


def derivative(stack: str, forward: Pass, seed: int) -> Derivative:
    """Return `own`, `later` and `others` of a stack; `later` is None if no token is later."""
    values, valid = forward.outputs("stack")[stack]
    value = values[0, 0]
    generator = torch.Generator().manual_seed(seed)
    projection = torch.randn(len(value), generator=generator, dtype=torch.float64)
    slopes = torch.autograd.grad(
        value @ projection.to(value),
        [args[0] for args in forward.entered.values()],
        retain_graph=True,
        materialize_grads=True,
    )
    parts: dict[str, list[float]] = {}
    for (name, args), slope in zip(forward.entered.items(), slopes, strict=True):
        at_input, real_input = real_values(slope, args)
        real = at_input * real_input[..., None]
        places = (real[0, 0], real[0, 1:], real[1:])
        parts[name] = [float(torch.linalg.vector_norm(part)) for part in places]
    own_token, later, _ = parts[stack]
    others = math.hypot(*(part[2] for part in parts.values()))
    return {
        "own": own_token,
        "later": ratio(later, own_token) if int(valid[0].sum()) > 1 else None,
        "others": ratio(others, own_token),
    }
