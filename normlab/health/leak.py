"""Does the first position depend on later ones, or on other sentences?

A random projection v of the last value at position 0 of the first of eight sentences is
differentiated by the embedded tokens e, before a norm on them, of each stack (of a residual network
by the pixels):

    own     ||d(v y_0) / d e_0||             its own token, of the same stack
    later   the same over its later tokens   over own; of the same stack
    others  the same over other sentences    over own; of all stacks

Frobenius norms over real tokens, for each stack's last values y, with the batch's statistics as in
training and as the model evaluates, without dropout, on a copy in float64: what does not depend is
exactly 0, or far below the smallest figure that counts, 1e-9.

A decoder's attention is causal, so that what comes through from later positions comes through its
norms: statistics over positions, or over the batch with all its positions, tell position 0 about
the tokens it is trained to predict. An encoder attends both ways, and later positions are its due.
Claims 17 (batch norm in a decoder) and 33 (a sentence depends on which others a device holds);
claims 11 and 16 for other sentences.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.health.movement import over
from normlab.health.subject import Finding, Subject
from normlab.health.watch import NO_STACKS, Ends, stacks_watched
from normlab.models.anatomy import stacks
from normlab.norms.base import batch_statistics
from normlab.probes.sites import real_values

QUESTION = "Does the first position depend on later positions, or on other sentences of the batch?"
SENTENCES = 8
NEGLIGIBLE = 1e-9  # relative to the own token's derivative, in float64
MODES = ("training", "eval")
COLUMNS = ("last value of", "statistics", "by later positions", "by other sentences")


def examine(subject: Subject) -> Finding:
    """Differentiate the first position of each stack, with training statistics and in eval."""
    number = len(subject.task.lengths("train"))
    if number < 2:
        return Finding.none(QUESTION, "there is no other sentence to depend on")
    if not stacks(subject.model):
        return Finding.none(QUESTION, NO_STACKS)
    generator = subject.generator("leak")
    picked = generator.permutation(number)[:SENTENCES].tolist()
    model = copy.deepcopy(subject.model).double().requires_grad_(False)
    seed = int(generator.integers(2**31))
    found = {mode: _look(subject, model, mode, picked, seed) for mode in MODES}
    ways = {name: stack.both_ways for name, stack in stacks(model).items()}
    figures = {"sentences": len(picked), "attends_both_ways": ways, **found}
    return Finding(QUESTION, _answer(figures), figures, COLUMNS, _rows(figures))


def _look(
    subject: Subject, model: nn.Module, mode: str, picked: Sequence[int], seed: int
) -> dict[str, dict[str, float | None]]:
    statistics = batch_statistics(model) if mode == "training" else nullcontext()
    batch = subject.batch("train", picked)
    with (
        statistics,
        torch.enable_grad(),
        _entries(model) as entries,
        stacks_watched(model) as ends,
    ):
        subject.task.losses(model, batch)
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


@contextmanager
def _entries(model: nn.Module) -> Iterator[dict[str, tuple[Any, ...]]]:
    """Put leaves of the graph at each stack's entry, and collect what it is called with by stack.

    They stand before the norm on embedded tokens, which may leak like any other.
    """
    entered: dict[str, tuple[Any, ...]] = {}
    with ExitStack() as hooks:
        for name, stack in stacks(model).items():

            def enter(_: nn.Module, arguments: tuple[Any, ...], *, name: str = name) -> Any:
                leaf = arguments[0].detach().requires_grad_()
                entered[name] = (leaf, *arguments[1:])
                return entered[name]

            hooks.callback(stack.entry.register_forward_pre_hook(enter).remove)
        yield entered


def leaks(found: Mapping[str, float | None], *, both_ways: bool) -> dict[str, float]:
    """Return those of `later` and `others` that ought to be 0 and are not."""
    due = {"later"} if both_ways else set()
    return {
        what: share
        for what in ("later", "others")
        if (share := found[what]) is not None and what not in due and not share < NEGLIGIBLE
    }


def _answer(figures: Mapping[str, Any]) -> str:
    return "; ".join(f"in {mode} {_words(figures, mode)}" for mode in MODES)


def _words(figures: Mapping[str, Any], mode: str) -> str:
    """Say which stack leaks what, or that none does."""
    words = {"later": "later positions", "others": "other sentences"}
    parts = []
    for stack, found in figures[mode].items():
        both_ways = figures["attends_both_ways"][stack]
        seen = [
            f"{words[what]} ({share:.2g} of its own token's slope)"
            for what, share in leaks(found, both_ways=both_ways).items()
        ]
        if seen:
            parts.append(f"the {stack} depends on {' and '.join(seen)}")
    return ", ".join(parts) or "nothing leaks"


def _rows(figures: Mapping[str, Any]) -> list[tuple[str | float | None, ...]]:
    rows = []
    for stack, both_ways in figures["attends_both_ways"].items():
        for mode in MODES:
            found = figures[mode][stack]
            later = "attends both ways" if both_ways else found["later"]
            rows.append((stack, mode, later, found["others"]))
    return rows
