"""Wraps the norm of a Flax model as a torch module, for the traces.

Tracing its subjects needs jax and flax, which no other part of the project uses: install them in a
separate environment, together with torch.
"""

import importlib
from typing import Any

import torch
from torch import Tensor, nn


class _Called(torch.autograd.Function):
    """Calls a Flax norm, and differentiates it with jax."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, function: Any) -> Tensor:
        jax = importlib.import_module("jax")
        arrays = (jax.numpy.asarray(each.detach().numpy()) for each in (x, weight))
        y, ctx.pull = jax.vjp(function, *arrays)
        return torch.tensor(y.__array__())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        jax = importlib.import_module("jax")
        gradients = ctx.pull(jax.numpy.asarray(grad.numpy()))
        return *(torch.tensor(each.__array__()) for each in gradients), None


class SingleScale(nn.Module):
    """The RMS norm of a model with `rmsnorm_scale="single"`, over the model's feature axes."""

    def __init__(self, module: Any, dim: int) -> None:
        super().__init__()
        importlib.import_module("jax").config.update("jax_enable_x64", True)
        axes = module.LlamaBase(dim=dim, rmsnorm_scale="single").rmsnorm_feature_axes
        self.norm = module.nn.RMSNorm(feature_axes=axes)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return _Called.apply(x, self.scale, self._apply_flax)

    def _apply_flax(self, x: Any, scale: Any) -> Any:
        return self.norm.apply({"params": {"scale": scale}}, x)
