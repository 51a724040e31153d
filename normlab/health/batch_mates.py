"""Is the same sentence computed otherwise in other company?

One training sentence is put into a batch with 31 others, fifty times with others drawn anew. Over
these sets s, at the sentence's own real positions,

    values     RMS over s of x_s - mean(x), over the RMS of x, of each stack's last values x
    attention  1/2 sum_keys |p_s - mean(p)|, the total variation distance of attention weights p
               from their mean over sets, a mean over sets, heads and the sentence's queries: the
               share of the attention that goes elsewhere, from 0 to 1

with the batch's statistics, as in training, and as the model evaluates. Dropout is off throughout.

Claim 16: batch norm gives the same sentence other values, and other attention, in other batches.
True of training; running statistics know no batch-mates.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.health.movement import ROUNDING, by_how_much, deviation
from normlab.health.subject import Finding, Subject
from normlab.health.watch import NO_STACKS, stacks_watched
from normlab.models.anatomy import stacks
from normlab.models.attention import AttentionCore
from normlab.norms.base import batch_statistics
from normlab.probes.sites import sites

QUESTION = "Does the same sentence come out otherwise among other sentences of its batch?"
SETS = 50
MATES = 31
MODES = ("training", "eval")
COLUMNS = ("of the sentence", "training", "eval")


@torch.no_grad()
def examine(subject: Subject) -> Finding:
    """Compute one sentence in fifty batches, with training statistics and in eval."""
    number = len(subject.task.lengths("train"))
    if number < 3:
        return Finding.none(QUESTION, f"{number} training sentences leave no choice of batch-mates")
    if not stacks(subject.model):
        return Finding.none(QUESTION, NO_STACKS)
    generator = subject.generator("batch_mates")
    sentence, *others = generator.permutation(number).tolist()
    mates = min(MATES, number // 2)
    sets = [generator.choice(others, mates, replace=False).tolist() for _ in range(SETS)]
    looks = {mode: [_look(subject, mode, [sentence, *chosen]) for chosen in sets] for mode in MODES}
    figures = {
        "sentence": sentence,
        "lengths": subject.task.lengths("train")[sentence].tolist(),
        "mates": mates,
        "sets": SETS,
        "values": {mode: values(looks[mode]) for mode in MODES},
        "attention": {mode: attention(looks[mode]) for mode in MODES},
    }
    return Finding(QUESTION, _answer(figures), figures, COLUMNS, _rows(figures))


@dataclass(frozen=True)
class Look:
    """What one batch made of its first sentence, at its real positions.

    The last values of each stack, and the weights of each attention.
    """

    last: dict[str, Float[Tensor, "_ D"]]
    weights: dict[str, Float[Tensor, "H _ _"]]


def _look(subject: Subject, mode: str, indices: Sequence[int]) -> Look:
    model, batch = subject.model, subject.batch("train", indices)
    statistics = batch_statistics(model) if mode == "training" else nullcontext()
    with statistics, stacks_watched(model) as ends, _attention_watched(model) as weights:
        subject.task.losses(model, batch)
    real = {name: end.valid[0] for name, end in ends.items()}
    return Look(
        last={name: end.last[0, real[name]] for name, end in ends.items()},
        weights={name: rows[:, real[stack_of(name, real)]] for name, rows in weights.items()},
    )


def stack_of(attention: str, stacks: Mapping[str, object]) -> str:
    """Return the name of the stack that an attention is in: `encoder` for `encoder.0.self`."""
    return max((name for name in stacks if attention.startswith(name)), key=len)


@contextmanager
def _attention_watched(model: nn.Module) -> Iterator[dict[str, Float[Tensor, "H _ _"]]]:
    """Collect the attention weights of a batch's first sentence, by attention."""
    seen: dict[str, Tensor] = {}

    def look_at(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            query, key, _, visible = arguments
            seen[name] = attention_weights(query, key, visible)

        return look

    with ExitStack() as hooks:
        for name, core in sites(model, AttentionCore).items():
            hooks.callback(core.register_forward_pre_hook(look_at(name)).remove)
        yield seen


def attention_weights(
    query: Float[Tensor, "B H P K"],
    key: Float[Tensor, "B H S K"],
    visible: Bool[Tensor, "..."] | None,
) -> Float[Tensor, "H P S"]:
    """Return softmax(q k' / sqrt(K)) of the first sentence; 0 for keys that it cannot see."""
    logits = query[0] @ key[0].transpose(-1, -2) / math.sqrt(query.shape[-1])
    if visible is not None:
        shown = visible.expand(*query.shape[:3], key.shape[2])[0]
        logits = logits.masked_fill(~shown, -torch.inf)
    return logits.softmax(-1)


def values(looks: Sequence[Look]) -> dict[str, float]:
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


def _answer(figures: Mapping[str, Any]) -> str:
    parts = []
    for mode in MODES:
        most = max(figures["values"][mode].values())
        text = f"in {mode} its values move {by_how_much(most)}"
        if most >= ROUNDING and (weights := figures["attention"][mode]):
            text += f" (attention {by_how_much(max(weights.values()))})"
        parts.append(text)
    return ", ".join(parts)


def _rows(figures: Mapping[str, Any]) -> list[tuple[str | float, ...]]:
    training, in_eval = (
        {
            f"{what}, {name}": value
            for what in ("values", "attention")
            for name, value in figures[what][mode].items()
        }
        for mode in MODES
    )
    return [(name, training[name], in_eval[name]) for name in training]
