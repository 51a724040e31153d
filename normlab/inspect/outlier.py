"""Outliers: does the norm stop a 999 from saturating attention, and which tokens does it affect?"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
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


@question("outlier", of="model")
@torch.no_grad()
def outlier(subject: Subject) -> Finding:
    """Does the norm stop a 999 from saturating attention, and which tokens does it affect?

    999 is added to one feature of the first token of one held-out sentence, where its stream begins
    (the embedded tokens), in one stack at a time. Against the unchanged batch:

        attention   entropy, largest logit, saturated rows and slope of each attention in the
                    sentence of the outlier, as `probes.attention` has
        moved       ||x' - x|| / ||x|| over the last values x of a stack, at the other tokens of
                    the sentence (`own`) and at those of other sentences (`others`)

    once as the model evaluates and once, where norms can, by the batch's own statistics. The
    softmax is alive where in no attention more than half of the sentence's rows are saturated.
    """
    if not subject.has_attention:
        return Finding.none("the model has no attention, and so no softmax over tokens")
    generator = subject.generator("outlier")
    picked = generator.permutation(subject.number("valid"))[:SENTENCES]
    batch = subject.batch("valid", picked.tolist())
    place = float(generator.random())  # of the feature in the width, from 0 to below 1
    modes: dict[str, AbstractContextManager[None]] = {"as evaluated": nullcontext()}
    if subject.keeps_statistics:
        modes["of the batch"] = normalized_by(subject.model, "batch")
    found: dict[str, Any] = {}
    rows: list[tuple[Cell, ...]] = []
    answers = []
    for statistics, mode in modes.items():
        with mode:
            changed, unchanged = disturbances(subject, batch, place)
        before = worst(unchanged)
        after = worst(*(by["attention"] for by in changed.values()))
        alive = after["saturated"] <= _ALIVE
        moved = {stack: by["moved"][stack] for stack, by in changed.items()}
        found[statistics] = {
            "unchanged": unchanged,
            "outlier_in": changed,
            "saturated": {"before": before["saturated"], "after": after["saturated"]},
            "least_slope": {"before": before["slope"], "after": after["slope"]},
            "alive": alive,
        }
        rows.append(("-", statistics, *before.values(), None, None))
        rows += [
            (stack, statistics, *worst(by["attention"]).values(), *moved[stack].values())
            for stack, by in changed.items()
        ]
        own, others = (max(by[where] for by in moved.values()) for where in ("own", "others"))
        fate = "keeps the softmax alive" if alive else "saturates"
        if before["saturated"] > _ALIVE:
            fate = "is saturated without the 999 already"
        answers.append(
            f"the model {statistics} {fate} (saturated rows {before['saturated']:.0%} -> "
            f"{after['saturated']:.0%}) and changes other tokens of the sentence by {own:.0%}, "
            f"other sentences by {others:.0%}"
        )
    return Finding("; ".join(answers), {"model": found}, Table(_COLUMNS, rows))


def disturbances(
    subject: Subject, batch: Batch, place: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what an outlier in each stack changes, and the attentions of the batch unchanged."""
    before = look(subject, batch, measure=describe)
    found = {}
    for stack in before.stacks:

        def add(name: str, x: Float[Tensor, "B P D"], stack: str = stack) -> Tensor:
            added = torch.zeros_like(x)
            added[0, 0, int(place * x.shape[-1])] = OUTLIER if name == stack else 0
            return x + added

        after = look(subject, batch, measure=describe, enter=add)
        moved = {}
        for name, end in before.stacks.items():
            own, others = end.valid.clone(), end.valid.clone()
            own[1:] = own[0, 0] = others[0] = False
            pair = after.stacks[name].all, end.all
            moved[name] = {
                where: movement(*(values[tokens] for values in pair))
                for where, tokens in (("own", own), ("others", others))
            }
        found[stack] = {"attention": after.attention, "moved": moved}
    return found, before.attention


def describe(
    query: Tensor, key: Tensor, visible: Tensor | None, real: Bool[Tensor, "B P"] | None
) -> dict[str, float]:
    """Describe an attention in the batch's first sentence."""
    assert real is not None, "an attention is in a residual connection"
    rows = real.clone()
    rows[1:] = False
    values = describe_attention(query, key, visible, rows, threshold=SATURATED)
    return {name: float(value) for name, value in values.items()}


def worst(*attentions: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the most saturated attention values in the outlier's sentence."""
    found = [each for attention in attentions for each in attention.values()]
    return {
        "largest": max(each["largest"] for each in found),
        "slope": min(each["slope"] for each in found),
        "saturated": max(each["saturated"] for each in found),
    }


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
