"""Batch mates: does a sentence's output depend on the rest of its batch?"""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.claims.evidence import Evidence
from normlab.inspect.computed import (
    LENGTH,
    SEED,
    WIDTH,
    changes,
    draw_tokens,
    new_norm,
    percent,
    piece,
    trained_norm,
)
from normlab.inspect.model import (
    MODES,
    NO_STACKS,
    ROUNDING,
    Subject,
    attentions_watched,
    by_how_much,
    deviation,
    stacks_watched,
)
from normlab.inspect.question import Finding, Table, question
from normlab.inspect.subject import batch_statistics, look

SETS = 50
MATES = 31
_COLUMNS = ("of the sentence", *MODES)


@question("batch_mates", of="model", claims=(16,))
@torch.no_grad()
def batch_mates(subject: Subject) -> Finding:
    """Does a sentence's output depend on the rest of its batch?

    One training sentence is put into a batch with 31 others, fifty times with others drawn afresh.
    Over these sets s, at the sentence's own real positions,

        values     RMS over s of x_s - mean(x), over the RMS of x, of each stack's last values x
        attention  1/2 sum_keys |p_s - mean(p)|, the total variation distance of attention weights
                   p from their mean over sets, a mean over sets, heads and the sentence's queries:
                   the share of the attention that goes elsewhere, from 0 to 1

    with the batch's statistics, as in training, and as the model evaluates. Dropout is off.
    """
    number = subject.number("train")
    if number < 3:
        return Finding.none(f"{number} training sentences leave no choice of batch mates")
    if not subject.stacks:
        return Finding.none(NO_STACKS)
    generator = subject.generator("batch_mates")
    sentence, *others = generator.permutation(number).tolist()
    mates = min(MATES, number // 2)
    sets = [generator.choice(others, mates, replace=False).tolist() for _ in range(SETS)]
    looks = {mode: [_look(subject, mode, [sentence, *chosen]) for chosen in sets] for mode in MODES}
    values = {
        "sentence": sentence,
        "lengths": subject.task.lengths("train")[sentence].tolist(),
        "mates": mates,
        "sets": SETS,
        "values": {mode: last_values(looks[mode]) for mode in MODES},
        "attention": {mode: attention(looks[mode]) for mode in MODES},
    }
    training, in_eval = (
        {
            f"{what}, {name}": each
            for what in ("values", "attention")
            for name, each in values[what][mode].items()
        }
        for mode in MODES
    )
    rows = [(name, training[name], in_eval[name]) for name in training]
    return Finding(_answer(values), values, Table(_COLUMNS, rows))


@dataclass(frozen=True)
class Look:
    """What one batch made of its first sentence, at its real positions.

    The last values of each stack, and the weights of each attention.
    """

    last: dict[str, Float[Tensor, "_ D"]]
    weights: dict[str, Float[Tensor, "H _ _"]]


def _look(subject: Subject, mode: str, indices: Sequence[int]) -> Look:
    model, batch = subject.model, subject.batch("train", indices)
    with (
        batch_statistics(model) if mode == "training" else nullcontext(),
        stacks_watched(model) as ends,
        attentions_watched(model, attention_weights) as weights,
    ):
        subject.losses(batch)
    real = {name: end.valid[0] for name, end in ends.items()}
    return Look(
        last={name: end.last[0, real[name]] for name, end in ends.items()},
        weights={name: rows[:, real[stack_of(name, real)]] for name, rows in weights.items()},
    )


def stack_of(attention: str, stacks: Mapping[str, object]) -> str:
    """Return the name of the stack that an attention is in: `encoder` for `encoder.0.self`."""
    return max((name for name in stacks if attention.startswith(name)), key=len)


def attention_weights(
    query: Float[Tensor, "B H P K"],
    key: Float[Tensor, "B H S K"],
    visible: Bool[Tensor, "..."] | None,
    _: object = None,
) -> Float[Tensor, "H P S"]:
    """Return softmax(q k' / sqrt(K)) of the first sentence; 0 for keys that it cannot see."""
    logits = query[0] @ key[0].transpose(-1, -2) / math.sqrt(query.shape[-1])
    if visible is not None:
        shown = visible.expand(*query.shape[:3], key.shape[2])[0]
        logits = logits.masked_fill(~shown, -torch.inf)
    return logits.softmax(-1)


def last_values(looks: Sequence[Look]) -> dict[str, float]:
    """Return by stack how far the last values deviate from their mean over sets."""
    return {
        name: deviation(torch.stack([look.last[name] for look in looks])) for name in looks[0].last
    }


def attention(looks: Sequence[Look]) -> dict[str, float]:
    """Return by attention how far the weights are from their mean over sets."""
    return {
        name: total_variation([look.weights[name] for look in looks]) for name in looks[0].weights
    }


def total_variation(weights: Sequence[Float[Tensor, "H P _"]]) -> float:
    """Return the mean over sets and rows of 1/2 sum |p - mean over sets of p|.

    Sets may differ in the number of keys: those that others lack are padding, without weight.
    """
    longest = max(rows.shape[-1] for rows in weights)
    together = torch.stack(
        [F.pad(rows.double(), (0, longest - rows.shape[-1])) for rows in weights]
    )
    return float((together - together.mean(0)).abs().sum(-1).mean() / 2)


def _answer(values: Mapping[str, Any]) -> str:
    parts = []
    for mode in MODES:
        most = max(values["values"][mode].values())
        text = f"in {mode} its values change {by_how_much(most)}"
        if most >= ROUNDING and (weights := values["attention"][mode]):
            text += f" (attention {by_how_much(max(weights.values()))})"
        parts.append(text)
    return ", ".join(parts)


@question("batch.mates", of="claim", claims=(16,))
def computed_mates() -> list[Evidence]:
    """Do a sentence and its attention change with the rest of its batch?

    One sentence is put among fifty sets of 31 others and attends to itself.
    """
    pool = draw_tokens(SETS * MATES + 1, LENGTH)
    sentence, others = pool[:1], pool[1:].reshape(SETS, MATES, LENGTH, WIDTH)
    change = "a sentence and its attention change with the rest of the batch"
    norms = {
        f"bn in training: {change}": new_norm("bn"),
        f"ln: {change.replace('change', 'do not change')}": new_norm("ln"),
        f"bn in eval, with running statistics: {change}": trained_norm("bn"),
    }
    pieces = []
    for text, norm in norms.items():
        outs = [look(norm, torch.cat([sentence, set_]))[0] for set_ in others]
        values, weights = deviation(torch.stack(outs)), total_variation(list(map(_attend, outs)))
        moves = changes(values)
        answer = f"values change by {percent(values)}, attention by {percent(weights)}"
        holds = moves == ("do not" not in text)
        found = {"values": values, "attention": weights}
        pieces.append(piece(text, answer if moves else "identical", holds=holds, **found))
    return pieces


def _attend(y: Float[Tensor, "P D"]) -> Float[Tensor, "1 P P"]:
    """Return where the tokens look by random queries and keys."""
    generator = torch.Generator().manual_seed(SEED)
    maps = torch.randn(2, WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    query, key = y @ maps / math.sqrt(WIDTH)
    return attention_weights(query[None, None], key[None, None], None)
