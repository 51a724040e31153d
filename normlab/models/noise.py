"""Noise on the input or on the weights of a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from normlab.models.base import stacks
from normlab.models.layers import Embedding, InputEmbedding

_SEED = 0x4015E


@contextmanager
def noisy(model: nn.Module, deviation: float) -> Iterator[None]:
    """Add Gaussian noise to a model's input inside the context.

    In a text model the noise is added to the token embeddings of the first stack (the source in
    translation), except at padding; in any other model it is added to the first argument, such as
    pixels, whose channels have variance 1.

    The noise generator is reseeded on entry and draws batch by batch. Two models that are given the
    same batches therefore get the same noise, whatever their norms. Changing the batch size or the
    number of processes changes the noise.

    Args:
        model: the model to add noise to.
        deviation: standard deviation of the noise, relative to the standard deviation of the
            input (for tokens: of the embedding table, without padding).
    """
    draw = torch.Generator().manual_seed(_SEED)
    modules = list(model.modules())
    # An embedding without a padding index is not a token embedding (a class token, for example).
    tables = [m for m in modules if isinstance(m, Embedding) and m.padding_idx is not None]
    entry, size = model, deviation
    if tables:
        weight = tables[0].table.detach()
        real = torch.arange(len(weight), device=weight.device) != tables[0].padding_idx
        scale = next((m.scale for m in modules if isinstance(m, InputEmbedding)), 1.0)
        entry, size = next(iter(stacks(model).values())).entry, deviation * scale
        size *= float(weight[real].float().std())

    def add(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *others = inputs
        noise = torch.randn(x.shape, generator=draw).mul_(size).to(x)
        return (x + (noise * others[0].real(x)[..., None] if tables else noise), *others)

    hook = entry.register_forward_pre_hook(add)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def noisy_weights(model: nn.Module, deviation: float) -> Iterator[None]:
    """Add Gaussian noise to a model's weights inside the context, and restore them on exit.

    The noise on each matrix, embedding table and kernel has a standard deviation of `deviation`
    times its root mean square. Biases and gains of norms get no noise, so that models with and
    without norms get the same amount. Models that differ only in their norms get the same noise, up
    to the size of the weights.
    """
    draw = torch.Generator().manual_seed(_SEED)
    weights = [weight for weight in model.parameters() if weight.dim() > 1]
    before = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight in weights:
            noise = torch.randn(weight.shape, generator=draw).to(weight)
            weight.add_(noise, alpha=deviation * float(weight.float().square().mean().sqrt()))
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, value in zip(weights, before, strict=True):
                weight.copy_(value)
