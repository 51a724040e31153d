"""Measures how much padding changes the outputs of real tokens."""

import math
import sys
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import relative_change
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.recorded_pass import (
    MODES,
    ROUNDING,
    Mode,
    amount_in_words,
    record,
)
from normlab.models.base import stacks
from normlab.norms.running import running_norms

SHARES = tuple(step / 10 for step in range(9))
SENTENCES = 32


@question("padding", of="model")
@torch.no_grad()
def padding(built: BuiltModel) -> Finding:
    """Does padding change the output of real tokens?

    Sentences of the same length, which need no padding, are padded so that padding makes up
    increasing shares p of the batch. With x_p the output of a stack at share p, and x_0 its output
    at the lowest share, over real tokens and features:

        moved = RMS(x_p - x_0) / RMS(x_0)

    This is measured with batch statistics, as in training, and with the statistics used in
    evaluation.
    """
    if not built.task.padded:
        return Finding.none("the batches of this task have no padding")
    positions = supported_positions(built.model)
    padded = draw_sentences(built, positions)
    if len(padded.shares) < 2:
        return Finding.none(
            f"sentences of {padded.longest} tokens leave no room for padding in {positions} "
            "positions"
        )
    changes = {mode: changes_by_share(built, padded, mode) for mode in MODES}
    most = {mode: max(by_share[-1] for by_share in changes[mode].values()) for mode in MODES}
    training, in_eval = MODES
    columns = {"padding": padded.shares} | {
        f"{stack}, {mode}": by_share
        for mode, by_stack in changes.items()
        for stack, by_share in by_stack.items()
    }
    largest = max(most.values())
    # If a norm is set to include padding, a change is worth a look; otherwise it is a fault.
    included = any(norm.padding == "include" for norm in running_norms(built.model))
    return Finding(
        f"real tokens' outputs change {amount_in_words(most[training])} at {padded.shares[-1]:.0%} "
        f"padding (training statistics), {amount_in_words(most[in_eval])} in eval",
        {
            "sentences": len(padded.sentences),
            "lengths": padded.mean_lengths,
            "shares": padded.shares,
            "moved": changes,
        },
        AnswerTable(list(columns), list(zip(*columns.values(), strict=True))),
        board={"padding": most[training]},
        verdict="fine" if largest < ROUNDING else "look" if included else "broken",
        value=largest,
        threshold=ROUNDING,
    )


class PaddedSentences(NamedTuple):
    """Sentences of the same lengths, and the shares of padding to add to them.

    `sentences` are indices. `longest` is the largest length on any side (source or target), and
    `mean_lengths` has the mean length on each side.
    """

    sentences: list[int]
    longest: int
    mean_lengths: list[float]
    shares: list[float]


def draw_sentences(built: BuiltModel, positions: int) -> PaddedSentences:
    """Draw training sentences of the same lengths, and choose the shares of padding that fit."""
    lengths = built.task.lengths("train")
    picked = same_lengths(
        lengths,
        longest=int(positions * (1 - SHARES[-1])),
        generator=built.generator("padding"),
    )
    longest = int(lengths[picked].max())
    shares = [share for share in SHARES if math.ceil(longest / (1 - share)) <= positions]
    return PaddedSentences(picked.tolist(), longest, lengths[picked].mean(0).tolist(), shares)


def changes_by_share(
    built: BuiltModel, padded: PaddedSentences, mode: Mode
) -> dict[str, list[float]]:
    """Return how far each stack's output moves from the lowest share of padding to each share."""
    batches = [built.batch("train", padded.sentences, padding=share) for share in padded.shares]
    passes = [record(built, batch, mode).outputs("stack") for batch in batches]
    return {
        name: [relative_change(each[name].real, x.real) for each in passes]
        for name, x in passes[0].items()
    }


def supported_positions(model: nn.Module) -> int:
    """Return how many positions the stacks of a model, and the tables of its norms, support."""
    limits = [stack.max_positions for stack in stacks(model).values()]
    rows = [len(norm.running_moments()[0]) for norm in running_norms(model)]
    table_sizes = [number for number in rows if number > 1]
    return min([*table_sizes, *(each for each in limits if each is not None)], default=sys.maxsize)


def same_lengths(
    lengths: Int[np.ndarray, "n k"], *, longest: int, generator: np.random.Generator
) -> Int[np.ndarray, " m"]:
    """Return the indices of at most 32 examples with the most common combination of lengths.

    `lengths` has the length of each example on each side. Combinations with a length above
    `longest` are skipped, unless all have one.
    """
    kinds, kind, counts = np.unique(lengths, axis=0, return_inverse=True, return_counts=True)
    fitting = kinds.max(1) <= max(longest, kinds.max(1).min())
    order = generator.permutation(len(lengths))
    common = kind.reshape(-1)[order] == np.argmax(np.where(fitting, counts, 0))
    return np.sort(order[common][:SENTENCES])
