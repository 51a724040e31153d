"""Leaks: does the first position depend on later ones, or on other sentences?"""

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.inspect.model import (
    MODES,
    NO_STACKS,
    Ends,
    Subject,
    entries_watched,
    over,
    real_values,
    stacks_watched,
)
from normlab.inspect.question import Finding, Table, question
from normlab.inspect.subject import batch_statistics

SENTENCES = 8
NEGLIGIBLE = 1e-9  # relative to the own token's derivative, in float64
_COLUMNS = ("last value of", "statistics", "by later positions", "by other sentences")
_WORDS = {"later": "later positions", "others": "other sentences"}


@question("leak", of="model", claims=(11, 16, 17, 33))
def leak(subject: Subject) -> Finding:
    """Does the first position depend on later positions, or on other sentences of the batch?

    A random projection v of the last value at position 0 of the first of eight sentences is
    differentiated by the embedded tokens e, before a norm on them, of each stack (in a residual
    network, by the pixels):

        own     ||d(v y_0) / d e_0||             its own token, of the same stack
        later   the same over its later tokens   over own; of the same stack
        others  the same over other sentences    over own; of all stacks

    Frobenius norms over real tokens, for each stack's last values y, with the batch's statistics
    as in training and as the model evaluates, without dropout, on a copy in float64: what does not
    depend is exactly 0, or far below 1e-9, the smallest value that counts.

    A decoder's attention is causal, so later positions can only come in through its norms:
    statistics over positions, or over the batch with all its positions, tell position 0 about the
    tokens it is trained to predict. An encoder attends both ways and may see them.
    """
    number = subject.number("train")
    if number < 2:
        return Finding.none("there is no other sentence to depend on")
    if not subject.stacks:
        return Finding.none(NO_STACKS)
    generator = subject.generator("leak")
    picked = generator.permutation(number)[:SENTENCES].tolist()
    model = copy.deepcopy(subject.model).double().requires_grad_(False)
    seed = int(generator.integers(2**31))
    found = {mode: _look(subject, model, mode, picked, seed) for mode in MODES}
    ways = {name: stack.both_ways for name, stack in subject.stacks.items()}
    values = {"sentences": len(picked), "attends_both_ways": ways, **found}
    rows = [
        (
            stack,
            mode,
            "attends both ways" if both_ways else found[mode][stack]["later"],
            found[mode][stack]["others"],
        )
        for stack, both_ways in ways.items()
        for mode in MODES
    ]
    answer = "; ".join(f"in {mode} {_in_words(found[mode], ways)}" for mode in MODES)
    return Finding(answer, values, Table(_COLUMNS, rows))


def _look(
    subject: Subject, model: nn.Module, mode: str, picked: Sequence[int], seed: int
) -> dict[str, dict[str, float | None]]:
    with (
        batch_statistics(model) if mode == "training" else nullcontext(),
        torch.enable_grad(),
        entries_watched(model) as entries,
        stacks_watched(model) as ends,
    ):
        subject.losses(subject.batch("train", picked), model)
        return {name: derivative(name, entries, ends, seed) for name in ends}


def derivative(
    stack: str, entries: Mapping[str, tuple[Any, ...]], ends: Mapping[str, Ends], seed: int
) -> dict[str, float | None]:
    """Return `own`, `later` and `others` of a stack; `later` is None where no token is later.

    `entries` are what each stack's entry is called with: the values to differentiate by first.
    """
    value = ends[stack].last[0, 0]
    generator = torch.Generator().manual_seed(seed)
    projection = torch.randn(len(value), generator=generator, dtype=torch.float64)
    names = list(entries)
    slopes = torch.autograd.grad(
        value @ projection.to(value),
        [entries[name][0] for name in names],
        retain_graph=True,
        materialize_grads=True,
    )
    parts = {
        name: split(*real_values(slope, entries[name]))
        for name, slope in zip(names, slopes, strict=True)
    }
    own, later, _ = parts[stack]
    others = math.hypot(*(part[2] for part in parts.values()))
    return {
        "own": own,
        "later": over(later, own) if int(ends[stack].valid[0].sum()) > 1 else None,
        "others": over(others, own),
    }


def split(slope: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> tuple[float, float, float]:
    """Return the norms of a derivative at the first position, at later ones, at other sentences."""
    real = slope * valid[..., None]
    parts = (real[0, 0], real[0, 1:], real[1:])
    own, later, others = (float(torch.linalg.vector_norm(part)) for part in parts)
    return own, later, others


def leaks(found: Mapping[str, float | None], *, both_ways: bool) -> dict[str, float]:
    """Return those of `later` and `others` that ought to be 0 and are not."""
    due = {"later"} if both_ways else set()
    return {
        what: share
        for what in _WORDS
        if (share := found[what]) is not None and what not in due and not share < NEGLIGIBLE
    }


def _in_words(found: Mapping[str, Mapping[str, float | None]], ways: Mapping[str, bool]) -> str:
    """Say which stack leaks what, or that none does."""
    parts = []
    for stack, each in found.items():
        seen = [
            f"{_WORDS[what]} ({share:.2g} of its own token's slope)"
            for what, share in leaks(each, both_ways=ways[stack]).items()
        ]
        if seen:
            parts.append(f"the {stack} depends on {' and '.join(seen)}")
    return ", ".join(parts) or "nothing leaks"
