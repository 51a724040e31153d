"""Noise on what a model is given, to ask how much it minds."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from normlab.models.embedding import StreamEmbedding
from normlab.models.linear import Embedding

_SEED = 0x4015E


@contextmanager
def noisy(model: nn.Module, deviation: float) -> Iterator[None]:
    """Add Gaussian noise to a model's input while the context lasts.

    Of a model of tokens the input is the vectors of the tokens that its first stack reads (the
    source of a translation), those of padding apart; of any other its first argument, such as
    pixels whose channels have variance 1.

    The noise begins anew with each context and follows the order of the batches. So two models
    that are fed the same batches are disturbed alike, whatever their norms; another number of
    examples a batch, or of processes, draws other noise.

    Args:
        model: of which the input is disturbed.
        deviation: the noise's standard deviation; the unit is that of the input's values, which in
            a token embedding is the standard deviation over the table of all tokens but padding.
    """
    draw = torch.Generator().manual_seed(_SEED)
    entry = next((m for m in model.modules() if isinstance(m, StreamEmbedding)), None)
    table = entry.tokens if entry is not None else _table(model)
    with ExitStack() as hooks:

        def watch(handle: Any) -> None:
            hooks.callback(handle.remove)

        if table is None:
            watch(model.register_forward_pre_hook(_on_input(draw, deviation)))
        else:
            vectors = _Vectors(draw, deviation * _deviation(table), always=entry is None)
            watch(table.register_forward_hook(vectors.add))
            if entry is not None:  # a table may be shared with stacks that are left alone
                watch(entry.register_forward_pre_hook(vectors.begin))
                watch(entry.register_forward_hook(vectors.end))
        yield


class _Vectors:
    """Hooks that disturb the vectors of a table, always or while its entry is at work."""

    def __init__(self, draw: torch.Generator, deviation: float, *, always: bool) -> None:
        self.draw, self.deviation, self.on = draw, deviation, always

    def begin(self, *_: Any) -> None:
        self.on = True

    def end(self, *_: Any) -> None:
        self.on = False

    def add(self, table: Any, given: tuple[Tensor], vectors: Tensor) -> Tensor:
        if not self.on:
            return vectors
        real = given[0].ne(table.padding_idx)
        return vectors + _noise(self.draw, vectors, self.deviation) * real[..., None]


def _table(model: nn.Module) -> Embedding | None:
    """Return the table of tokens of a model without a stack; those of other things pad nothing."""
    tables = (module for module in model.modules() if isinstance(module, Embedding))
    return next((table for table in tables if table.padding_idx is not None), None)


def _on_input(draw: torch.Generator, deviation: float) -> Any:
    def add(model: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        values, *others = given
        return (values + _noise(draw, values, deviation), *others)

    return add


def _noise(draw: torch.Generator, like: Tensor, deviation: float) -> Tensor:
    return torch.randn(like.shape, generator=draw).mul_(deviation).to(like)


@torch.no_grad()
def _deviation(table: Embedding) -> float:
    """Return the standard deviation of all values of a table as they are used."""
    real = torch.arange(table.num_embeddings, device=table.weight.device) != table.padding_idx
    return float(table.table[real].float().std())
