"""The norms and values that checks use.

Seeds are fixed and everything is computed in float64, so the results are the same on every machine.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.config.registry import options
from normlab.inspection.norm.example_norm import example_norm
from normlab.inspection.norm.norm_calls import trained_on
from normlab.norms.base import Norm
from normlab.norms.make import make_norm

SEED, WIDTH, LENGTH = 1, 64, 12


def new_norm(name: str, width: int = WIDTH, **values: Any) -> Norm:
    """Build the norm of an option, in float64 and training mode."""
    return make_norm(name, width, **values).double().train()


def draw_normal(*shape: int, seed: int = SEED) -> Float[Tensor, "*shape"]:
    """Draw standard normal values."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def draw_tokens(*shape: int, seed: int = SEED) -> Float[Tensor, "... D"]:
    """Draw normal values. A feature's mean and standard deviation do not depend on the seed."""
    draw = torch.Generator().manual_seed(seed)
    features = torch.Generator().manual_seed(SEED)
    mean, spread = torch.randn(2, WIDTH, generator=features, dtype=torch.float64)
    values = torch.randn(*shape, WIDTH, generator=draw, dtype=torch.float64)
    return values * (1 + spread.abs()) + 2 * mean


def trained_norm(name: str, **values: Any) -> Norm:
    """Return a norm in eval mode that has seen 60 batches of 32 sequences of 16 tokens."""
    return trained_on(new_norm(name, **values), *draw_tokens(60, 32, 16, seed=SEED + 1))


def norm_of_example_width(name: str) -> Norm:
    """Build the norm of an option with the width of the articles' example tensor."""
    return example_norm(next(each for each in options("norm") if each.name == name)).make()
