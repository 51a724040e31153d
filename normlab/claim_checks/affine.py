"""Whether a learned scale and shift can undo a norm."""

import torch

from normlab.claim_checks.check import check, finding
from normlab.claim_checks.inputs import WIDTH, draw_tokens, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import percent, relative_change
from normlab.inspection.norm.norm_calls import run


@check("affine.identity")
def identity() -> list[CheckFinding]:
    """Is there a scale and shift for each feature that undoes a norm on a given batch?

    They are fitted by least squares for each feature. For batch norm, they are the standard
    deviation and the mean. The remaining error is relative to the spread of the input.
    """
    x = draw_tokens(32, 16)
    flat = x.flatten(0, 1)
    left = {}
    for name in ("bn", "ln"):
        normal = run(new_norm(name), x).flatten(0, 1)
        best = torch.empty_like(flat)
        for d in range(WIDTH):
            design = torch.stack([normal[:, d], torch.ones(len(flat), dtype=torch.float64)], dim=1)
            best[:, d] = design @ torch.linalg.lstsq(design, flat[:, d : d + 1]).solution[:, 0]
        left[name] = relative_change(best - flat.mean(0), flat - flat.mean(0))
    statement = "a learned scale and shift can undo the norm, so that nothing is lost"
    return [
        finding(
            name,
            f"{name}: {statement}",
            "they can, up to rounding"
            if off < 1e-9
            else f"at best {percent(off)} of the input's spread is lost",
            holds=off < 1e-9,
            left=off,
        )
        for name, off in left.items()
    ]
