"""Checks of which orders of values a norm preserves."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claim_checks.check import check, finding
from normlab.claim_checks.inputs import SEED, WIDTH, draw_normal, draw_tokens, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.inspection.norm.norm_calls import run, run_copy
from normlab.norms.base import Norm


class Case(NamedTuple):
    """A norm, and whether it `keeps` an order according to an article.

    With `over_samples`, it is the order of a feature's values over samples, and otherwise the order
    of a token's features.
    """

    name: str
    statement: str
    norm: Norm
    over_samples: bool
    keeps: bool


def cases() -> list[Case]:
    """Return the cases that the articles state for layer norm and batch norm."""
    ln, bn, weighted = new_norm("ln"), new_norm("bn"), new_norm("ln")
    generator = torch.Generator().manual_seed(SEED)
    weighted.weight.data.copy_(0.5 + torch.rand(WIDTH, generator=generator, dtype=torch.float64))
    with_weights = "ln keeps it with learned weights"
    return [
        _case("ln", ln, over_samples=False, keeps=True),
        _case("bn", bn, over_samples=True, keeps=True),
        _case("ln", ln, over_samples=True, keeps=False),
        _case("bn", bn, over_samples=False, keeps=False),
        Case(
            with_weights,
            "ln keeps the order of a token's features with learned weights, too (0.5 to 1.5 here)",
            weighted,
            over_samples=False,
            keeps=True,
        ),
    ]


def _case(name: str, norm: Norm, *, over_samples: bool, keeps: bool) -> Case:
    """Return the case of a new norm, with its name and its statement."""
    keeping = f"{name} {'keeps' if keeps else 'does not keep'} the order of"
    values, whose = ("samples", "a feature's") if over_samples else ("features", "a token's")
    return Case(f"{keeping} {values}", f"{keeping} {whose} {values}", norm, over_samples, keeps)


@check("order.kept")
def order_kept() -> list[CheckFinding]:
    """Does a norm preserve the order of values within a token, and within a feature?"""
    x, findings = draw_tokens(8, 16), []
    for name, statement, norm, over_samples, keeps in cases():
        before, after = (table.flatten(0, 1) for table in (x, run_copy(norm, x)))
        rows = (before.T, after.T) if over_samples else (before, after)
        correlation = rank_correlation(*rows)
        answer = (
            f"rank correlation {correlation['rho']:.4g}; the order is the same in "
            f"{correlation['exact']:.0%} of cases"
        )
        holds = (correlation["exact"] == 1) == keeps
        findings.append(finding(name, statement, answer, holds=holds, **correlation))
    return findings


@check("order.time")
def order_over_time() -> list[CheckFinding]:
    """Which norm preserves the order of a feature's values over the positions of a sentence?

    Tokens have four features, as in the articles' example. The values are normally distributed.
    """
    x = draw_normal(64, 16, 4)
    findings = []
    for name, statement in (
        ("ln", "ln keeps the order of a feature over time"),
        ("bn", "bn does not keep the order of a feature over time"),
    ):
        before, after = (each.mT.flatten(0, 1) for each in (x, run(new_norm(name, 4), x)))
        pairs, whole = pairs_in_order(before, after)
        in_order = f"{pairs:.0%} of pairs of positions stay in order"
        answer = f"{in_order}, and all pairs do in {whole:.0%} of sentences"
        holds = (whole == 1) == (name == "ln")
        findings.append(finding(name, statement, answer, holds=holds, pairs=pairs, whole=whole))
    return findings


class KeptOrder(NamedTuple):
    """The share of pairs that stay in order, and the share of rows in which all pairs do."""

    pairs: float
    rows: float


def pairs_in_order(x: Float[Tensor, "N M"], y: Float[Tensor, "N M"]) -> KeptOrder:
    """Return how many pairs of entries of a row are in the same order in `x` and in `y`."""
    first, second = (each[:, :, None] > each[:, None] for each in (x, y))
    above = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    same = (first == second)[:, above]
    return KeptOrder(float(same.double().mean()), float(same.all(-1).double().mean()))


def rank_correlation(x: Float[Tensor, "N M"], y: Float[Tensor, "N M"]) -> dict[str, float]:
    """Return Spearman's `rho`, averaged over rows, and the share of rows with the same order.

    The share is keyed `exact`. Without ties, rho = 1 - 6 sum d^2 / (M (M^2 - 1)), where d are the
    differences in rank.
    """
    first, second = (table.argsort(-1).argsort(-1).double() for table in (x, y))
    size, square = x.shape[-1], (first - second).square().sum(-1)
    rho = 1 - 6 * square / (size * (size**2 - 1))
    return {"rho": float(rho.mean()), "exact": float((square == 0).double().mean())}
