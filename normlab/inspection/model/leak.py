"""Differentiates the first position's output with respect to other positions and sentences."""

import copy
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import percent, ratio
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.recorded_pass import (
    MODES,
    RecordedPass,
    in_mode,
    recording,
    verdict_by_mode,
)
from normlab.models.base import stacks
from normlab.probes.sites import real_values

SENTENCES = 8
NEGLIGIBLE = 1e-9  # relative to the derivative with respect to the token itself, in float64
_WORDS = {"later": "later positions", "others": "other sentences"}


@question("leak", of="model")
def leak(built: BuiltModel) -> Finding:
    """Does the first position depend on later positions, or on other sentences of the batch?

    Let y_0 be a stack's output at position 0 of the first of eight sentences, and v a random
    vector. v y_0 is differentiated with respect to the embedded tokens e of each stack, before any
    norm of them (in a residual network, with respect to the pixels):

        own     ||d(v y_0) / d e_0||, for the sentence's first token, in the same stack
        later   the same for the sentence's later tokens, divided by own, in the same stack
        others  the same for other sentences, divided by own, over all stacks

    These are Frobenius norms over real tokens. They are computed on a copy of the model in float64,
    without dropout, with batch statistics as in training and with the statistics used in
    evaluation. Without any dependence, the value is exactly 0 or far below 1e-9, the smallest value
    that is called a leak.

    A decoder's attention is causal, so later positions can only leak in through its norms:
    statistics over positions, or over the whole batch, contain information about the tokens that
    position 0 is trained to predict. An encoder attends both ways and may depend on later
    positions.
    """
    number = built.number("train")
    if number < 2:
        return Finding.none("there is no other sentence to depend on")
    generator = built.generator("leak")
    sentences = generator.permutation(number)[:SENTENCES].tolist()
    seed = int(generator.integers(2**31))
    by_mode = derivatives_by_mode(built, sentences, seed)
    both_ways = {name: stack.both_ways for name, stack in stacks(built.model).items()}
    most = {
        mode: max(
            [0.0, *(x for name, each in of.items() for x in each.leaks(both_ways[name]).values())]
        )
        for mode, of in by_mode.items()
    }
    texts = [f"in {mode} {_in_words(of, both_ways)}" for mode, of in by_mode.items()]
    return Finding(
        "; ".join(texts),
        {
            "sentences": len(sentences),
            "attends_both_ways": both_ways,
            **{
                mode: {stack: each.values() for stack, each in of.items()}
                for mode, of in by_mode.items()
            },
        },
        _table(by_mode, both_ways),
        verdict=verdict_by_mode(most, NEGLIGIBLE),
        value=max(most.values()),
        threshold=NEGLIGIBLE,
    )


class Derivatives(NamedTuple):
    """The derivatives of a stack's output at position 0, as `leak` defines them.

    `later` is None if the sentence has no later token.
    """

    own_token: float
    later: float | None
    others: float

    def values(self) -> dict[str, float | None]:
        """Return the entry in `inspect.json`."""
        return {"own": self.own_token, "later": self.later, "others": self.others}

    def leaks(self, both_ways: bool) -> dict[str, float]:
        """Return the derivatives that must be 0: `others` and, in a causal stack, `later`."""
        others = {"others": self.others}
        return others if both_ways else {"later": self.later or 0.0, **others}


def derivatives_by_mode(
    built: BuiltModel, sentences: list[int], seed: int
) -> dict[str, dict[str, Derivatives]]:
    """Return the derivatives, keyed by mode and stack, of a copy of the model in float64."""
    model = copy.deepcopy(built.model).double().requires_grad_(False)
    by_mode: dict[str, dict[str, Derivatives]] = {}
    for mode in MODES:
        with in_mode(model, mode), torch.enable_grad(), recording(model, leaves=True) as forward:
            built.losses(built.batch("train", sentences), model)
            stack_names = forward.outputs("stack")
            by_mode[mode] = {name: derivatives(name, forward, seed) for name in stack_names}
    return by_mode


def derivatives(stack: str, forward: RecordedPass, seed: int) -> Derivatives:
    """Return the derivatives of a stack's output at position 0. `seed` seeds the projection v."""
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
    by_stack = {
        name: _slope_norms(*real_values(slope, args))
        for (name, args), slope in zip(forward.entered.items(), slopes, strict=True)
    }
    own_token = by_stack[stack].own_token
    others = math.hypot(*(norms.others for norms in by_stack.values()))
    return Derivatives(
        own_token,
        ratio(by_stack[stack].later, own_token) if int(valid[0].sum()) > 1 else None,
        ratio(others, own_token),
    )


class SlopeNorms(NamedTuple):
    """The norms of an output's derivative, taken at the first token.

    They are those of its part for the token itself, for later tokens and for other sentences.
    """

    own_token: float
    later: float
    others: float


def _slope_norms(slope: Float[Tensor, "B P D"], real: Bool[Tensor, "B P"]) -> SlopeNorms:
    """Return the Frobenius norms, over real tokens, of the derivative for a stack's input."""
    at_tokens = slope * real[..., None]
    parts = (at_tokens[0, 0], at_tokens[0, 1:], at_tokens[1:])
    return SlopeNorms(*(float(torch.linalg.vector_norm(part)) for part in parts))


def _in_words(by_stack: Mapping[str, Derivatives], both_ways: Mapping[str, bool]) -> str:
    """Return as text what leaks into each stack, or that nothing leaks."""
    texts: list[str] = []
    for stack, each in by_stack.items():
        leaks = each.leaks(both_ways[stack])
        sees = [f"{_WORDS[of]} ({percent(x)})" for of, x in leaks.items() if x >= NEGLIGIBLE]
        if sees:
            texts.append(f"the {stack} sees {' and '.join(sees)}")
    return ", ".join(texts) or "nothing leaks"


def _table(
    by_mode: Mapping[str, Mapping[str, Derivatives]], both_ways: Mapping[str, bool]
) -> AnswerTable:
    rows = [
        (stack, mode, "attends both ways" if both_ways[stack] else each.later, each.others)
        for mode, by_stack in by_mode.items()
        for stack, each in by_stack.items()
    ]
    columns = ("stack", "statistics", "by later positions", "by other sentences")
    return AnswerTable(columns, sorted(rows, key=lambda row: row[0]))
