"""Padding: does it change the output of real tokens?"""

import math
import sys

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import relative_change
from normlab.inspection.recording import MODES, ROUNDING, by_how_much, look
from normlab.inspection.subject import Subject
from normlab.models.base import stacks
from normlab.norms.running import running_norms

SHARES = tuple(step / 10 for step in range(9))
SENTENCES = 32


@question("padding", of="model")
@torch.no_grad()
def padding(subject: Subject) -> Finding:
    """Does padding change the output of real tokens?

    Sentences of the same length, which need no padding, are padded so that padding makes up
    increasing shares p of the batch. Over real tokens and features, with x_p a stack's output at
    share p and x_0 its output at the lowest share:

        moved = RMS(x_p - x_0) / RMS(x_0)

    This is measured with batch statistics, as in training, and in eval mode.
    """
    if not subject.task.padded:
        return Finding.none("its batches have no padding")
    room, lengths = positions(subject.model), subject.task.lengths("train")
    generator = subject.generator("padding")
    picked = same_lengths(lengths, longest=int(room * (1 - SHARES[-1])), generator=generator)
    longest, mean_lengths = int(lengths[picked].max()), lengths[picked].mean(0).tolist()
    shares = [share for share in SHARES if math.ceil(longest / (1 - share)) <= room]
    if len(shares) < 2:
        return Finding.none(
            f"sentences of {longest} tokens leave no room for padding in {room} positions"
        )
    changes: dict[str, dict[str, list[float]]] = {}
    for mode in MODES:
        batches = [subject.batch("train", picked.tolist(), padding=share) for share in shares]
        passes = [look(subject, batch, mode).outputs("stack") for batch in batches]
        changes[mode] = {
            name: [relative_change(each[name].real, x.real) for each in passes]
            for name, x in passes[0].items()
        }
    training, in_eval = (max(by_share[-1] for by_share in changes[mode].values()) for mode in MODES)
    columns = {"padding": shares}
    for mode in MODES:
        columns |= {f"{stack}, {mode}": by_share for stack, by_share in changes[mode].items()}
    most = max(training, in_eval)
    # If the norm is set to count padding, this is worth a look; otherwise it is a fault.
    counted = any(norm.padding == "include" for norm in running_norms(subject.model))
    return Finding(
        f"real tokens' outputs change {by_how_much(training)} at {shares[-1]:.0%} padding "
        f"(training statistics), {by_how_much(in_eval)} in eval",
        {"sentences": len(picked), "lengths": mean_lengths, "shares": shares, "moved": changes},
        AnswerTable(list(columns), list(zip(*columns.values(), strict=True))),
        board={"padding": training},
        verdict="fine" if most < ROUNDING else "look" if counted else "broken",
        value=most,
        threshold=ROUNDING,
    )


def positions(model: nn.Module) -> int:
    """Return how many positions a model supports, given its stacks and its norms' tables."""
    limits = [stack.max_positions for stack in stacks(model).values()]
    rows = [len(norm.running_moments()[0]) for norm in running_norms(model)]
    table_sizes = [number for number in rows if number > 1]
    return min([*table_sizes, *(each for each in limits if each is not None)], default=sys.maxsize)


def same_lengths(
    lengths: Int[np.ndarray, "n k"], *, longest: int, generator: np.random.Generator
) -> Int[np.ndarray, " m"]:
    """Return the indices of at most 32 examples with the most common combination of lengths.

    `lengths` has the length of each example on each side. Combinations with a length above
    `longest` are skipped, unless there is no other.
    """
    kinds, kind, counts = np.unique(lengths, axis=0, return_inverse=True, return_counts=True)
    fitting = kinds.max(1) <= max(longest, kinds.max(1).min())
    order = generator.permutation(len(lengths))
    common = kind.reshape(-1)[order] == np.argmax(np.where(fitting, counts, 0))
    return np.sort(order[common][:SENTENCES])
