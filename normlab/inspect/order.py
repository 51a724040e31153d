"""Order: does a norm keep the order of a token's features, or of a feature's tokens?"""

import copy
import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from normlab.claims.evidence import Evidence
from normlab.inspect.computed import SEED, WIDTH, draw_tokens, new_norm, piece
from normlab.inspect.model import Passage, Subject, look
from normlab.inspect.question import Finding, Table, question
from normlab.inspect.subject import call, run
from normlab.norms.base import Norm, normalized_by

SENTENCES = 16
TOKENS = 128  # drawn from the batch for ranking
_COLUMNS = ("order of", "statistics alone", "exact", "with weight and bias", "exact ")
_AXES = {"features": "a token's features", "tokens": "a feature's tokens"}
_KINDS = ("alone", "learned")
_VALUES = ("rho", "exact")


@question("order", of="model", claims=(20,))
@torch.no_grad()
def order(subject: Subject) -> Finding:
    """Does the norm keep the order of a token's features, or of a feature's tokens?

    At each norm, on a batch with training statistics, Spearman's rank correlation between what
    goes in and what comes out,

        rho = corr(rank(x), rank(y)),    equal values sharing the mean of their ranks,

    within a token over its features, and within a feature over the real tokens of the batch: means
    over both and over the norms, and the share of them whose ranks are all the same ("exact").
    Once for the statistics alone (weight 1, bias 0) and once with the weight and bias as learned.
    Norms are run in float64, where rounding makes no ties.
    """
    norms = subject.norms
    if not norms:
        return Finding.none("the model has no norm")
    generator = subject.generator("order")
    picked = generator.permutation(subject.number("valid"))[:SENTENCES]
    batch = subject.batch("valid", np.sort(picked).tolist())
    by_site: dict[str, dict[str, Any]] = {}
    seen = look(subject, batch, "training")
    with normalized_by(subject.model, "batch"):
        for name, passage in seen.norms.items():
            if name in norms:
                by_site[name] = orders(norms[name], passage, drawn(passage, generator))

    def mean(kind: str, axis: str, value: str) -> float:
        found = [each[kind][axis][value] for each in by_site.values()]
        return fmean([one for one in found if not math.isnan(one)] or [math.nan])

    values: dict[str, Any] = {
        **{k: {a: {v: mean(k, a, v) for v in _VALUES} for a in _AXES} for k in _KINDS},
        "by_site": by_site,
    }
    rows = [
        (words, *(values[kind][axis][value] for kind in _KINDS for value in _VALUES))
        for axis, words in _AXES.items()
    ]
    return Finding(_answer(values), values, Table(_COLUMNS, rows))


def ranks(values: Float[Tensor, "N M"]) -> Float[Tensor, "N M"]:
    """Return the rank of each value in its row, from 1; equal values share the mean of theirs."""
    values = values.contiguous()
    ordered = values.sort(-1).values
    below = torch.searchsorted(ordered, values)
    up_to = torch.searchsorted(ordered, values, right=True)
    return (below + up_to + 1).double() / 2


def rank_correlation(x: Float[Tensor, "N M"], y: Float[Tensor, "N M"]) -> dict[str, float]:
    """Return the mean over rows of Spearman's `rho`, and the share of rows that are `exact`.

    A row without two different values in `x` has no order and is left out; one that is constant in
    `y` alone has lost it, with a rho of 0. Both values are nan where no row is left.
    """
    first, second = ranks(x), ranks(y)
    ordered = (x != x[:, :1]).any(-1)
    first, second = first[ordered], second[ordered]
    exact = (first == second).all(-1)
    first, second = (table - table.mean(-1, keepdim=True) for table in (first, second))
    scale = first.norm(dim=-1) * second.norm(dim=-1)
    rho = torch.where(scale > 0, (first * second).sum(-1) / scale.clamp(min=1e-300), 0.0)
    return {"rho": float(rho.mean()), "exact": float(exact.double().mean())}


@torch.no_grad()
def orders(norm: Norm, passage: Passage, tokens: Int[Tensor, "N"]) -> dict[str, Any]:
    """Return the rank correlations of a norm's input and output, by axis, with and without affine.

    `tokens` are the flat places of those that are ranked; the whole batch is normalized.
    """
    learned = copy.deepcopy(norm).double()
    alone = copy.deepcopy(learned)
    alone.weight.fill_(1)
    alone.bias.fill_(0)
    x = passage.x.double()
    found = {}
    for kind, made in zip(_KINDS, (alone, learned), strict=True):
        y = call(made, x, passage.valid)
        before, after = (table.flatten(0, 1)[tokens] for table in (x, y))
        found[kind] = {
            "features": rank_correlation(before, after),
            "tokens": rank_correlation(before.T, after.T),
        }
    return found


def drawn(passage: Passage, generator: np.random.Generator) -> Int[Tensor, "N"]:
    """Draw real tokens of a batch, as flat places."""
    real = passage.valid.flatten().nonzero()[:, 0]
    return real[generator.permutation(len(real))[:TOKENS].tolist()]


def _answer(values: Mapping[str, Any]) -> str:
    parts = []
    for axis, words in _AXES.items():
        alone, learned = (_kept(values[kind][axis]) for kind in _KINDS)
        more = "" if alone == learned else f", with weight and bias {learned}"
        parts.append(f"that of {words} {alone}{more}")
    return "; ".join(parts)


def _kept(found: Mapping[str, float]) -> str:
    if found["exact"] == 1:
        return "exactly"
    return f"to rho {found['rho']:.3f} ({found['exact']:.0%} exactly)"


@question("order.kept", of="claim", claims=(20,))
def computed_order() -> list[Evidence]:
    """Which order of values does a norm keep, over a token's features and a feature's tokens?"""
    x = draw_tokens(8, 16)
    generator = torch.Generator().manual_seed(SEED)
    weighted = new_norm("ln")
    weighted.weight.data.copy_(0.5 + torch.rand(WIDTH, generator=generator, dtype=torch.float64))
    asked = (
        ("ln keeps the order of a token's features", new_norm("ln"), False, True),
        ("bn keeps the order of a feature's samples", new_norm("bn"), True, True),
        ("ln does not keep the order of a feature's samples", new_norm("ln"), True, False),
        ("bn does not keep the order of a token's features", new_norm("bn"), False, False),
        ("ln keeps it with learned weights too (0.5 to 1.5 here)", weighted, False, True),
    )
    pieces = []
    for text, norm, across, exactly in asked:
        before, after = (table.flatten(0, 1) for table in (x, run(norm, x)))
        pair = (before.T, after.T) if across else (before, after)
        found = rank_correlation(*pair)
        answer = f"rank correlation {found['rho']:.4g}, exact in {found['exact']:.0%}"
        pieces.append(piece(text, answer, holds=(found["exact"] == 1) == exactly, **found))
    return pieces
