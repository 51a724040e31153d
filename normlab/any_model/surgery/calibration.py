"""Runs a model on calibration batches, and yields the inputs and outputs of its norms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial, reduce
from operator import add
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normlab.any_model.batches.from_batch import run_batch
from normlab.any_model.surgery.least_squares import mean_and_variance, sums


class NormCall(NamedTuple):
    """A call of a norm: its path, its input and output, and the batch's mask [rows, positions]."""

    path: str
    x: Tensor
    y: Tensor
    mask: Tensor | None


class Calibration:
    """Runs a model on a few batches, by default as `call_with` does."""

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[Any],
        forward: Callable[[nn.Module, Any], Any] | None,
    ) -> None:
        self.batches = batches
        self.run = partial(run_batch, model, forward=forward)

    def calls(self, norms: Mapping[str, nn.Module], *, once: bool = False) -> Iterator[NormCall]:
        """Yield the calls of norms, with copies of their tensors, in the order of execution.

        Calls with several tensors (gated norms) are left out. With `once`, each pass ends after its
        first call of a norm.
        """
        for batch in self.batches:
            yield from self._calls_of(norms, batch, once=once)

    def input_shapes(self, norms: Mapping[str, nn.Module]) -> dict[str, list[torch.Size]]:
        """Return the shapes of each norm's inputs in the first batch, in the order of execution."""
        shapes: dict[str, list[torch.Size]] = {}
        for call in self._calls_of(norms, self.batches[0], rows=0):
            shapes.setdefault(call.path, []).append(call.x.shape)
        return shapes

    def running_statistics(self, path: str, norm: nn.Module, *, once: bool) -> dict[str, Tensor]:
        """Return the mean and variance of each channel of a batch norm's inputs, over all calls."""
        inputs = (
            (call.x.movedim(1, -1), call.mask) for call in self.calls({path: norm}, once=once)
        )
        mean, var = mean_and_variance(reduce(add, (sums(x, x, mask) for x, mask in inputs)))
        return {"running_mean": mean, "running_var": var}

    def mean_loss(self, loss: Callable[[Any, Any], Tensor] | None) -> float | None:
        """Return the mean of `loss(output, batch)` over the batches, or None without a loss."""
        if loss is None:
            return None
        return fmean(float(loss(self.run(batch), batch)) for batch in self.batches)

    def _calls_of(
        self,
        norms: Mapping[str, nn.Module],
        batch: Any,
        *,
        rows: int | None = None,
        once: bool = False,
    ) -> list[NormCall]:
        """Return the calls in one pass over a batch, with tensors cut to the first rows."""
        mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
        calls: list[NormCall] = []

        def record(path: str, _: nn.Module, args: Any, kwargs: dict[str, Any], y: Tensor) -> None:
            x, *more = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
            if not more:
                # copies, because later operations may change them in place
                calls.append(NormCall(path, x[:rows].clone(), y[:rows].clone(), mask))
                if once:
                    raise _EndOfPass

        with ExitStack() as hooks:
            for path, norm in norms.items():
                hook = norm.register_forward_hook(partial(record, path), with_kwargs=True)
                hooks.callback(hook.remove)
            with suppress(_EndOfPass):
                self.run(batch)
        return calls


class _EndOfPass(BaseException):
    """Raised to end a forward pass early if the rest is not needed."""
