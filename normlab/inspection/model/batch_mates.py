"""Measures how much a sentence's output varies with the other sentences in its batch."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.recorded_pass import (
    MODES,
    ROUNDING,
    Mode,
    RecordedPass,
    amount_in_words,
    deviation,
    record,
    verdict_by_mode,
)

SETS = 16
MATES = 31


@question("batch_mates", of="model")
@torch.no_grad()
def batch_mates(built: BuiltModel) -> Finding:
    """Does a sentence's output depend on the rest of its batch?

    One training sentence is batched with each of sixteen sets of 31 other sentences. At the real
    positions of the sentence, with x_s and p_s the values for set s, and means over sets:

        values     RMS of x_s - mean(x), divided by the RMS of x, for each stack's output x
        attention  1/2 sum_keys |p_s - mean(p)|, the total variation distance of attention weights
                   p from their mean, averaged over sets, heads and the sentence's queries: the
                   share of the attention that moves to other keys, from 0 to 1

    Both are measured with batch statistics, as in training, and with the statistics used in
    evaluation, without dropout.
    """
    number = built.number("train")
    if number < 3:
        return Finding.none(f"{number} training sentences are too few to vary the batch mates")
    drawn = draw_sets(built)
    changes = {mode: changes_over_sets(outputs_by_set(built, drawn, mode)) for mode in MODES}
    most = {mode: max(each.values.values()) for mode, each in changes.items()}
    training, in_eval = MODES
    return Finding(
        f"other sentences change a sentence's values {_in_words(changes)}",
        {
            "sentence": drawn.sentence,
            "lengths": built.task.lengths("train")[drawn.sentence].tolist(),
            "mates": len(drawn.sets[0]),
            "sets": len(drawn.sets),
            "values": {mode: each.values for mode, each in changes.items()},
            "attention": {mode: each.attention for mode, each in changes.items()},
        },
        AnswerTable(("of the sentence", *MODES), _rows(changes[training], changes[in_eval])),
        board={"mates": most[training]},
        verdict=verdict_by_mode(most, ROUNDING),
        value=max(most.values()),
        threshold=ROUNDING,
    )


class DrawnSets(NamedTuple):
    """The index of a training sentence, and the indices of its batch mates in each set."""

    sentence: int
    sets: list[list[int]]


class SentenceOutputs(NamedTuple):
    """A sentence's output in each stack (`values`), and its weights in each attention."""

    values: dict[str, Float[Tensor, "_ D"]]
    attention: dict[str, Float[Tensor, "H _ _"]]


class ChangesOverSets(NamedTuple):
    """How much a sentence's output in each stack, and its attention weights, vary over sets."""

    values: dict[str, float]
    attention: dict[str, float]


def draw_sets(built: BuiltModel) -> DrawnSets:
    """Draw a training sentence and its sets of batch mates."""
    number, generator = built.number("train"), built.generator("batch_mates")
    sentence, *others = generator.permutation(number).tolist()
    mates = min(MATES, number // 2)
    sets = [generator.choice(others, mates, replace=False).tolist() for _ in range(SETS)]
    return DrawnSets(sentence, sets)


def outputs_by_set(built: BuiltModel, drawn: DrawnSets, mode: Mode) -> list[SentenceOutputs]:
    """Return the sentence's outputs and attention weights with each set of batch mates."""
    batches = (built.batch("train", [drawn.sentence, *mates]) for mates in drawn.sets)
    return [of_first(record(built, batch, mode)) for batch in batches]


def changes_over_sets(by_set: Sequence[SentenceOutputs]) -> ChangesOverSets:
    """Return the deviation of each output and the total variation of each attention over sets."""
    values, attention = by_set[0]
    return ChangesOverSets(
        {name: deviation([each.values[name] for each in by_set]) for name in values},
        {name: total_variation([each.attention[name] for each in by_set]) for name in attention},
    )


def _in_words(changes: Mapping[str, ChangesOverSets]) -> str:
    """Return as text how much values change in each mode and, if they do, attention."""
    texts = []
    for mode, (values, attention) in changes.items():
        most = max(values.values())
        text = f"{amount_in_words(most)} in {mode}"
        if most >= ROUNDING and attention:
            text += f" (attention {amount_in_words(max(attention.values()))})"
        texts.append(text)
    return ", ".join(texts)


def _rows(training: ChangesOverSets, in_eval: ChangesOverSets) -> list[tuple[str, float, float]]:
    return [
        (f"{what}, {name}", change, by_name_in_eval[name])
        for what, by_name, by_name_in_eval in zip(
            ChangesOverSets._fields, training, in_eval, strict=True
        )
        for name, change in by_name.items()
    ]


def of_first(forward: RecordedPass) -> SentenceOutputs:
    """Return the outputs and attention weights of the first sentence in the batch."""
    values = {name: end.all[0, end.valid[0]] for name, end in forward.outputs("stack").items()}
    attention = {
        name: attention_weights(each.query, each.key, each.visible)[:, each.real[0]]
        for name, each in forward.attentions.items()
    }
    return SentenceOutputs(values, attention)


def attention_weights(
    query: Float[Tensor, "B H P K"],
    key: Float[Tensor, "B H S K"],
    visible: Bool[Tensor, "..."] | None,
) -> Float[Tensor, "H P S"]:
    """Return softmax(q k' / sqrt(K)) for the first sentence. Masked keys have weight 0."""
    logits = query[0] @ key[0].transpose(-1, -2) / math.sqrt(query.shape[-1])
    if visible is not None:
        shown = visible.expand(*query.shape[:3], key.shape[2])[0]
        logits = logits.masked_fill(~shown, -torch.inf)
    return logits.softmax(-1)


def total_variation(weights: Sequence[Float[Tensor, "H P _"]]) -> float:
    """Return 1/2 sum |p - mean(p)|, where mean(p) is over sets; it is averaged over sets and rows.

    `weights` holds the weights of each set. If sets differ in the number of keys, missing keys are
    padding with weight 0.
    """
    longest = max(rows.shape[-1] for rows in weights)
    padded_rows = [F.pad(rows.double(), (0, longest - rows.shape[-1])) for rows in weights]
    together = torch.stack(padded_rows)
    return float((together - together.mean(0)).abs().sum(-1).mean() / 2)
