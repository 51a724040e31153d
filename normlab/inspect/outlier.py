"""Outliers: does the norm stop a 999 from saturating attention, and which tokens does it affect?"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.claims.evidence import Evidence
from normlab.inspect.computed import piece
from normlab.inspect.model import Subject, look, movement
from normlab.inspect.question import Cell, Finding, Table, question
from normlab.inspect.subject import run
from normlab.norms.base import Norm, normalized_by
from normlab.probes.attention import describe_attention
from normlab.tasks.base import Batch
from normlab.train.build import make_norm

OUTLIER = 999.0
SENTENCES = 8
SATURATED = 0.99
SENTENCE = ((10.0, 20.0, 999.0, -5.0), (0.1, 0.2, 0.1, 0.1), (5.0, 5.0, 5.0, 5.0))
"""Document 002's "I love eat": three tokens of four features."""
_ALIVE = 0.5  # most rows that may be saturated
_COLUMNS = (
    *("outlier in", "statistics", "largest logit", "least slope", "most saturated"),
    *("others in its sentence move", "other sentences move"),
)
Values = Mapping[str, Any]


@question("outlier", of="model")
def outlier(subject: Subject) -> Finding:
    """Does the norm stop a 999 from saturating attention, and which tokens does it affect?

    999 is added to one feature of the first token of one held-out sentence, where its stream begins
    (the embedded tokens), in one stack at a time. Against the unchanged batch:

        attention   entropy, largest logit, saturated rows and slope of each attention in the
                    sentence of the outlier, as `probes.attention` has
        moved       ||x' - x|| / ||x|| over the last values x of a stack, at the other tokens of
                    the sentence (`own`) and at those of other sentences (`others`)

    once as the model evaluates and once, where norms can, by the batch's own statistics.
    """
    if not subject.has_attention:
        return Finding.none("the model has no attention, and so no softmax over tokens")
    generator = subject.generator("outlier")
    picked = generator.permutation(subject.number("valid"))[:SENTENCES]
    batch = subject.batch("valid", picked.tolist())
    feature = float(generator.random())
    modes: dict[str, Callable[[], AbstractContextManager[None]]] = {"as evaluated": nullcontext}
    if subject.keeps_statistics:
        modes["of the batch"] = lambda: normalized_by(subject.model, "batch")
    found = {}
    for name, mode in modes.items():
        with mode():
            found[name] = disturbances(subject, batch, feature)
    return Finding(_answer(found), {"model": found}, Table(_COLUMNS, _rows(found)))


@torch.no_grad()
def disturbances(subject: Subject, batch: Batch, feature: float) -> dict[str, Any]:
    """Return the attentions of the batch unchanged, and what an outlier in each stack changes.

    `feature` chooses the feature by its place in the width, from 0 to below 1. The softmax is alive
    where in no attention more than half of the rows of the outlier's sentence are saturated.
    """
    before = look(subject, batch, measure=describe)
    found = {}
    for stack in before.stacks:
        after = look(subject, batch, measure=describe, enter=partial(_add, stack, feature))
        moved = {
            name: _moved(end.last, after.stacks[name].last, end.valid)
            for name, end in before.stacks.items()
        }
        found[stack] = {"attention": after.attention, "moved": moved}
    unchanged, changed = worst(before.attention), [worst(by["attention"]) for by in found.values()]
    saturated = max(by["saturated"] for by in changed)
    least = min(by["slope"] for by in changed)
    return {
        "unchanged": before.attention,
        "outlier_in": found,
        "saturated": {"before": unchanged["saturated"], "after": saturated},
        "least_slope": {"before": unchanged["slope"], "after": least},
        "alive": saturated <= _ALIVE,
    }


def _moved(
    old: Float[Tensor, "B P D"], new: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]
) -> dict[str, float]:
    """Compare two passes at the tokens that have no outlier added."""
    first = torch.arange(len(valid), device=valid.device)[:, None] == 0
    tokens = {"own": valid & first, "others": valid & ~first}
    tokens["own"][0, 0] = False
    return {where: movement(new[chosen], old[chosen]) for where, chosen in tokens.items()}


def describe(
    query: Tensor, key: Tensor, visible: Tensor | None, real: Bool[Tensor, "B P"] | None
) -> dict[str, float]:
    """Describe an attention in the batch's first sentence."""
    assert real is not None, "an attention is in a residual connection"
    rows = real & (torch.arange(len(real), device=real.device)[:, None] == 0)
    values = describe_attention(query, key, visible, rows, threshold=SATURATED)
    return {name: float(value) for name, value in values.items()}


def _add(stack: str, feature: float, name: str, x: Float[Tensor, "B P D"]) -> Tensor:
    """Add the outlier to the first values of a stack."""
    if name != stack:
        return x
    added = torch.zeros_like(x)
    added[0, 0, int(feature * x.shape[-1])] = OUTLIER
    return x + added


def worst(attention: Values) -> dict[str, float]:
    """Return the most saturated attention values in the outlier's sentence."""
    return {
        "largest": max(found["largest"] for found in attention.values()),
        "slope": min(found["slope"] for found in attention.values()),
        "saturated": max(found["saturated"] for found in attention.values()),
    }


def _rows(by_statistics: Values) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for statistics, found in by_statistics.items():
        rows.append(("-", statistics, *worst(found["unchanged"]).values(), None, None))
        for stack, by in found["outlier_in"].items():
            effects = by["moved"][stack]["own"], by["moved"][stack]["others"]
            rows.append((stack, statistics, *worst(by["attention"]).values(), *effects))
    return rows


def _answer(by_statistics: Values) -> str:
    parts = []
    for statistics, found in by_statistics.items():
        moved = [by["moved"][stack] for stack, by in found["outlier_in"].items()]
        own, others = (max(by[where] for by in moved) for where in ("own", "others"))
        before, after = (found["saturated"][when] for when in ("before", "after"))
        fate = "keeps the softmax alive" if after <= _ALIVE else "saturates"
        if before > _ALIVE:
            fate = "is saturated without the 999 already"
        parts.append(
            f"the model {statistics} {fate} (saturated rows {before:.0%} -> {after:.0%}) and "
            f"changes other tokens of the sentence by {own:.0%}, other sentences by {others:.0%}"
        )
    return "; ".join(parts)


@question("outlier.softmax", of="claim")
def softmax() -> list[Evidence]:
    """Does an outlier of 999 saturate the softmax, with and without layer norm?

    Layer norm brings the 999 down to 1.73, and its token still has one dominant entry: the others
    are -0.55 to -0.60.
    """
    bare, ln = (through(make_norm(name, 4)) for name in ("none", "ln"))
    logits, slopes = ([found[key] for found in (bare, ln)] for key in ("largest_logit", "slope"))
    return [
        piece(
            "without a norm the token of the 999 saturates the softmax, whose gradient is 0",
            f"largest logit {logits[0]:,.0f}, slope {slopes[0][0]:.3g}",
            holds=slopes[0][0] < 1e-6,
            logit=logits[0],
            slope=slopes[0][0],
        ),
        piece(
            "ln brings the 999 down, so the softmax still has a gradient",
            f"999 becomes {ln['values'][0][2]:.2f} (not in -1 to 1), largest logit "
            f"{logits[1]:.2f}, slope {slopes[1][0]:.3f}",
            holds=slopes[1][0] > 0.01,
            logit=logits[1],
            slope=slopes[1][0],
            value=ln["values"][0][2],
        ),
    ]


def slope(weights: Float[Tensor, "*N M"]) -> Float[Tensor, "*N"]:
    """Return 1 - sum p^2 of each row, which is 0 where one weight is 1."""
    return 1 - weights.square().sum(-1)


def through(norm: Norm) -> dict[str, Any]:
    """Return what a norm makes of the sentence with the 999, and where its tokens then look.

    The sentence is alone in its batch and attends to itself, with the vectors as queries and keys:
    softmax(y y' / sqrt(D)). By row: the largest weight and the slope.
    """
    y = run(norm.double(), torch.tensor([SENTENCE], dtype=torch.float64))[0]
    logits = y @ y.T / math.sqrt(y.shape[-1])
    weights = logits.softmax(-1)
    return {
        "values": y.tolist(),
        "largest_logit": float(logits.abs().max()),
        "largest_weight": weights.amax(-1).tolist(),
        "slope": slope(weights).tolist(),
    }
