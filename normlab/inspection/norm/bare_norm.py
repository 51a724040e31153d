"""A norm outside any model, new or trained: the subject of the questions about norms."""

import copy
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.inspection.norm.norm_calls import call, fixed_seed, normal
from normlab.norms.base import Norm
from normlab.norms.model_norms import ModelNorms

STEPS = 12  # length of a run in which all phases of a norm end
VALID = torch.arange(6) < torch.tensor([6, 2, 4, 5])[:, None]
"""The mask of the real tokens in four sequences of 6, 2, 4 and 5 tokens."""


class BareNorm:
    """A norm in float64, new or trained. Each call returns a copy."""

    width = 64

    def __init__(self, build: Callable[[int], Norm]) -> None:
        with fixed_seed():
            self._prototype = build(self.width)
        self._trained: dict[int, Norm] = {}

    def new(self, dtype: torch.dtype = torch.float64) -> Norm:
        """Return a new norm in training mode."""
        return copy.deepcopy(self._prototype).to(dtype).train()

    def trained(self, steps: int = STEPS) -> Norm:
        """Return the norm in training mode after the first `steps` steps of a run of `STEPS`."""
        if steps not in self._trained:
            norm = self.new()
            for number in range(1, steps + 1):
                train_step(norm, number)
            self._trained[steps] = norm
        return copy.deepcopy(self._trained[steps])

    def tokens(self, seed: int = 0) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
        """Return four sequences, padded to six tokens, and the mask `VALID` of the real tokens."""
        return self.values(*VALID.shape, seed=seed), VALID.clone()

    def values(self, *shape: int, seed: int = 0) -> Float[Tensor, "B P D"]:
        """Return normally distributed values with a mean of 2 and a standard deviation of 3."""
        return normal(*shape, self.width, seed=seed)


def varied_loss(y: Tensor) -> Tensor:
    """Return a loss that normalization does not make constant, as it does the sum."""
    return (y * y.detach().cos()).sum()


def train_step(norm: Norm, number: int) -> tuple[Tensor, Tensor]:
    """Train on one batch. Return the outputs and the input's gradients, both at real tokens."""
    norms = ModelNorms(nn.Sequential(norm))
    norms.begin_step(number, STEPS)
    x = normal(*VALID.shape, norm.dim, seed=number).requires_grad_()
    y = call(norm, x, VALID)[VALID]
    price = norms.penalty()
    (varied_loss(y) + (0 if price is None else price)).backward()
    norms.commit()
    assert x.grad is not None
    return y.detach(), x.grad[VALID]
