"""Gradients that are not those of the forward pass: a moment projected out of them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Projection = Callable[[Tensor], Tensor]


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, backward: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(z)
        ctx.gradient = backward
        return z.view_as(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return ctx.gradient(grad, z), None


def projected(z: Tensor, gradient: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return `z`, whose gradient g becomes `gradient(g, z)` in the backward pass.

    PowerNorm, MABN and Unified Norm subtract a multiple of z from it, g - m z, with m a moment of
    this batch's gradient or of earlier ones, which `gradient` may also remember.
    """
    return _Projected.apply(z, gradient)
