"""Which orderings of values a norm preserves."""

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.claims.evidence import CheckFinding
from normlab.inspection.claim_checks.check import check, finding
from normlab.inspection.claim_checks.inputs import SEED, WIDTH, draw, draw_tokens, new_norm
from normlab.inspection.norm.norm_calls import run


@check("order.kept")
def order_kept() -> list[CheckFinding]:
    """Does a norm preserve the order of values within a token, and within a feature?"""
    x = draw_tokens(8, 16)
    generator = torch.Generator().manual_seed(SEED)
    weighted = new_norm("ln")
    weighted.weight.data.copy_(0.5 + torch.rand(WIDTH, generator=generator, dtype=torch.float64))
    cases = (
        (
            "ln keeps the order",
            "ln keeps the order of a token's features",
            new_norm("ln"),
            False,
            True,
        ),
        (
            "bn keeps the order",
            "bn keeps the order of a feature's samples",
            new_norm("bn"),
            True,
            True,
        ),
        (
            "ln does not keep",
            "ln does not keep the order of a feature's samples",
            new_norm("ln"),
            True,
            False,
        ),
        (
            "bn does not keep",
            "bn does not keep the order of a token's features",
            new_norm("bn"),
            False,
            False,
        ),
        (
            "ln keeps it with learned weights",
            "ln keeps it with learned weights too (0.5 to 1.5 here)",
            weighted,
            False,
            True,
        ),
    )
    findings = []
    for name, text, norm, across, exactly in cases:
        before, after = (table.flatten(0, 1) for table in (x, run(norm, x)))
        correlation = rank_correlation(*(before.T, after.T) if across else (before, after))
        answer = f"rank correlation {correlation['rho']:.4g}, exact in {correlation['exact']:.0%}"
        findings.append(
            finding(name, text, answer, holds=(correlation["exact"] == 1) == exactly, **correlation)
        )
    return findings


@check("order.time")
def order_over_time() -> list[CheckFinding]:
    """Which norm preserves the order of a feature's values over the positions of a sentence?

    Tokens have four features, as in the articles' example; their values are normal.
    """
    x = draw(64, 16, 4)
    findings = []
    for name, statement in (
        ("ln", "ln keeps the order of a feature over time"),
        ("bn", "bn does not keep the order of a feature over time"),
    ):
        before, after = (each.mT.flatten(0, 1) for each in (x, run(new_norm(name, 4), x)))
        pairs, whole = pairs_in_order(before, after)
        answer = f"{pairs:.0%} of pairs of positions stay in order, {whole:.0%} of sentences do"
        holds = (whole == 1) == (name == "ln")
        findings.append(finding(name, statement, answer, holds=holds, pairs=pairs, whole=whole))
    return findings


def pairs_in_order(x: Float[Tensor, "N M"], y: Float[Tensor, "N M"]) -> tuple[float, float]:
    """Return the share of pairs that keep their order, and the share of rows in which all do."""
    first, second = (each[:, :, None] > each[:, None] for each in (x, y))
    above = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    same = (first == second)[:, above]
    return float(same.double().mean()), float(same.all(-1).double().mean())


def rank_correlation(x: Float[Tensor, "N M"], y: Float[Tensor, "N M"]) -> dict[str, float]:
    """Return Spearman's `rho`, averaged over rows, and the share of rows in the same order.

    Without ties, rho = 1 - 6 sum d^2 / (M (M^2 - 1)), where d are the differences in rank.
    """
    first, second = (table.argsort(-1).argsort(-1).double() for table in (x, y))
    size, square = x.shape[-1], (first - second).square().sum(-1)
    rho = 1 - 6 * square / (size * (size**2 - 1))
    return {"rho": float(rho.mean()), "exact": float((square == 0).double().mean())}
