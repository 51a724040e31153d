"""Checks of whether a learned scale and shift can undo a norm."""

import torch

from normlab.claim_checks.check import check, exceeds_rounding, finding
from normlab.claim_checks.inputs import WIDTH, draw_tokens, new_norm
from normlab.claims.evidence import CheckFinding
from normlab.findings.relative_change import percent, relative_change
from normlab.inspection.norm.norm_calls import run


def error_after_undoing(name: str) -> float:
    """Undo a norm with the best scale and shift for each feature, and return the remaining error.

    The scale and shift are fitted by least squares on the batch. The error is relative to the
    spread of the norm's input.
    """
    x = draw_tokens(32, 16)
    inputs, outputs = x.flatten(0, 1), run(new_norm(name), x).flatten(0, 1)
    fitted = torch.empty_like(inputs)
    ones = torch.ones(len(inputs), dtype=torch.float64)
    for d in range(WIDTH):
        design = torch.stack([outputs[:, d], ones], dim=1)
        fitted[:, d] = design @ torch.linalg.lstsq(design, inputs[:, d : d + 1]).solution[:, 0]
    return relative_change(fitted - inputs.mean(0), inputs - inputs.mean(0))


@check("affine.identity")
def identity() -> list[CheckFinding]:
    """Is there a scale and shift for each feature that undoes a norm on a given batch?

    For batch norm, they are the standard deviation and the mean.
    """
    statement = "a learned scale and shift can undo the norm, so that nothing is lost"
    return [
        finding(
            name,
            f"{name}: {statement}",
            f"at best {percent(error)} of the input's spread is lost"
            if exceeds_rounding(error)
            else "they can, up to rounding",
            holds=not exceeds_rounding(error),
            left=error,
        )
        for name, error in ((name, error_after_undoing(name)) for name in ("bn", "ln"))
    ]
