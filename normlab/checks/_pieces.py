"""Decides how a check makes its norms, its numbers and its pieces of evidence."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.build import make_norm
from normlab.claims.evidence import Evidence
from normlab.explain.subject import run
from normlab.health.movement import percent
from normlab.norms.base import Norm

SEED = 1
_ROUNDING = 1e-9  # of float64, far above what the order of sums explains


def piece(question: str, finding: str, *, holds: bool, **numbers: float) -> Evidence:
    """Return what a check found; where it does not hold, it contradicts the claim."""
    return Evidence("unit", question, finding, "supports" if holds else "contradicts", numbers)


def moves(share: float) -> bool:
    """Tell whether a relative movement is more than rounding."""
    return share > _ROUNDING


def said(share: float) -> str:
    """Put a relative movement into words, the same on every machine."""
    return f"it moves by {percent(share)}" if moves(share) else "it does not move"


def new(name: str, dim: int, **values: Any) -> Norm:
    """Return the norm of an option in float64 and training mode."""
    return make_norm(name, dim, **values).double().train()


def tokens(*shape: int, seed: int = SEED) -> Float[Tensor, "..."]:
    """Draw normal values with a mean and a spread of their own in each feature.

    These are the same for all draws of a width: of one distribution.
    """
    draw = torch.Generator().manual_seed(seed)
    features = torch.Generator().manual_seed(SEED)
    mean, spread = torch.randn(2, shape[-1], generator=features, dtype=torch.float64)
    values = torch.randn(*shape, generator=draw, dtype=torch.float64)
    return values * (1 + spread.abs()) + 2 * mean


def trained(norm: Norm) -> Norm:
    """Let a norm see 60 batches of 32 sequences of 16 tokens, and return it in eval mode."""
    for batch in tokens(60, 32, 16, norm.dim, seed=SEED + 1):
        run(norm, batch)
    return norm.eval()
