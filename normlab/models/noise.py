"""Noise on what a model is given, to ask how much it minds."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from normlab.models.linear import Embedding

_SEED = 0x4015E


@contextmanager
def noisy(model: nn.Module, deviation: float) -> Iterator[None]:
    """Add Gaussian noise to a model's input while the context lasts.

    Of a model of tokens the input is the vectors of its token embeddings, those of padding apart;
    of any other its first argument, such as pixels whose channels have variance 1.

    The noise begins anew with each context, so two models that are fed the same batches are
    disturbed alike, whatever their norms. It follows the order of the batches: another number of
    examples a batch, or of processes, draws other noise.

    Args:
        model: of which the input is disturbed.
        deviation: the noise's standard deviation; the unit is that of the input's values, which in
            a token embedding is the standard deviation over the table of all tokens but padding.
    """
    draw = torch.Generator().manual_seed(_SEED)
    tables = [
        module
        for module in model.modules()
        if isinstance(module, Embedding) and module.padding_idx is not None
    ]
    with ExitStack() as hooks:
        for table in tables:
            handle = table.register_forward_hook(_on_vectors(draw, deviation * _spread(table)))
            hooks.callback(handle.remove)
        if not tables:
            handle = model.register_forward_pre_hook(_on_input(draw, deviation))
            hooks.callback(handle.remove)
        yield


def _on_vectors(draw: torch.Generator, deviation: float) -> Any:
    def add(table: nn.Module, given: tuple[Tensor], vectors: Tensor) -> Tensor:
        real = given[0] != table.padding_idx
        return vectors + _noise(draw, vectors, deviation) * real[..., None]

    return add


def _on_input(draw: torch.Generator, deviation: float) -> Any:
    def add(model: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        values, *others = given
        return (values + _noise(draw, values, deviation), *others)

    return add


def _noise(draw: torch.Generator, like: Tensor, deviation: float) -> Tensor:
    return torch.randn(like.shape, generator=draw).mul_(deviation).to(like)


@torch.no_grad()
def _spread(table: Embedding) -> float:
    """Return the standard deviation of all values of a table as they are used."""
    real = torch.arange(table.num_embeddings, device=table.weight.device) != table.padding_idx
    return float(table.table[real].float().std())
