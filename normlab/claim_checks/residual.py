"""Checks of what a norm does to the residual stream."""

import torch

from normlab.claim_checks.check import change_finding, check
from normlab.claim_checks.inputs import draw_tokens, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import relative_change
from normlab.norms.tokens import Tokens
from normlab.placements.base import NormResidual
from normlab.placements.post import PostResidual
from normlab.placements.pre import PreResidual


@check("residual.signal")
def signal() -> list[CheckFinding]:
    """Does a norm change the signal that bypasses a sub-layer whose output is zero?"""

    def moved(kind: type[NormResidual], name: str) -> float:
        x = draw_tokens(8, 16)
        with torch.no_grad():
            return relative_change(kind(new_norm(name), 0.0)(x, Tokens(), torch.zeros_like), x)

    changes, leaves = (f"{what} the signal on the skip path" for what in ("changes", "leaves"))
    after = {name: moved(PostResidual, name) for name in ("bn", "ln")}
    before = moved(PreResidual, "bn")
    return [
        change_finding("bn after", f"bn after the residual sum {changes}", after["bn"]),
        change_finding(
            "ln after", f"ln after the residual sum {leaves}", after["ln"], expected=False
        ),
        change_finding("bn before", f"bn before the sub-layer {leaves}", before, expected=False),
    ]
