"""Decides claim 20: which order of values a norm keeps."""

import torch

from normlab.checks._pieces import SEED, new, piece, tokens
from normlab.claims.evidence import Evidence
from normlab.explain.subject import run
from normlab.health.order import rank_correlation

_WIDTH = 64


def kept() -> list[Evidence]:
    """Correlate ranks before and after the norm, over a token's features and a feature's tokens."""
    x = tokens(8, 16, _WIDTH)
    weight = 0.5 + torch.rand(
        _WIDTH, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64
    )
    found = {}
    for name in ("ln", "bn"):
        norm = new(name, _WIDTH)
        before, after = (table.flatten(0, 1) for table in (x, run(norm, x)))
        found[name, "features"] = rank_correlation(before, after)
        found[name, "samples"] = rank_correlation(before.T, after.T)
        if name == "ln":
            norm.weight.data.copy_(weight)
            after = run(norm, x).flatten(0, 1)
            found["ln", "learned"] = rank_correlation(before, after)
    asked = {
        ("ln", "features"): ("ln keeps the order of a token's features", True),
        ("bn", "samples"): ("bn keeps the order of a feature's samples", True),
        ("ln", "samples"): ("ln does not keep that of a feature's samples", False),
        ("bn", "features"): ("bn does not keep that of a token's features", False),
        ("ln", "learned"): ("ln keeps it with learned weights too (0.5 to 1.5 here)", True),
    }
    return [
        piece(
            question,
            f"rank correlation {found[key]['rho']:.4g}, exact in {found[key]['exact']:.0%}",
            holds=(found[key]["exact"] == 1) == exactly,
            **found[key],
        )
        for key, (question, exactly) in asked.items()
    ]
