"""The calibration pass: one batch, before the first step, for residuals that ask for it.

The model computes what it does in training, dropout and the batch's own statistics included, and
nothing of the pass stays behind but what the residuals take from it: no running statistics, no
gradients, no random numbers. Processes share their sums, so that all of them find the same values.
"""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.distributed import sum_over_ranks
from normlab.norms.base import Norm, Stream, normalized_by
from normlab.placements.base import Residual


class Pass:
    """What a calibration pass has found so far, in the order of the forward pass."""

    total: Float[Tensor, ""]

    def variance(
        self, x: Float[Tensor, "B P D"], counted: Bool[Tensor, "B P"]
    ) -> Float[Tensor, ""]:
        """Return the variance over all features of the counted tokens of all processes."""
        wide = x.double() * counted[..., None]
        count = counted.sum().double() * x.shape[-1]
        count, first, second = sum_over_ranks(
            torch.stack([count, wide.sum(), wide.square().sum()])
        ).unbind()
        return second / count - (first / count).square()


class Calibrated(Residual):
    """A residual connection that takes values of its own from a calibration pass.

    Its `dropout` is the last module that a branch passes before it is added.
    """

    dropout: nn.Module

    @abstractmethod
    def enter(self, x: Tensor, stream: Stream, found: Pass) -> None:
        """Take notice of what enters, before anything is computed of it."""

    @abstractmethod
    def leave(self, added: Tensor, stream: Stream, found: Pass) -> None:
        """Take notice of what its branch adds."""


def needs_calibration(model: nn.Module) -> bool:
    """Tell whether a model has anything that takes values from a calibration pass."""
    return any(isinstance(module, Calibrated) for module in model.modules())


@torch.no_grad()
def calibrate(model: nn.Module, run_batch: Callable[[], object], *, seed: int) -> None:
    """Let the residuals of a model take their first values from `run_batch`, a forward pass.

    `seed` draws its dropout. All processes must call it, and a model that is not compiled yet.
    """
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    found = Pass()
    streams: dict[nn.Module, Stream] = {}

    def enter(residual: nn.Module, arguments: tuple[Any, ...]) -> None:
        assert isinstance(residual, Calibrated)
        streams[residual] = arguments[1]
        residual.enter(arguments[0], arguments[1], found)

    def leave(residual: Calibrated, _: nn.Module, __: tuple[Any, ...], added: Tensor) -> None:
        residual.leave(added, streams[residual], found)

    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(list(devices)))
        stack.enter_context(normalized_by(model, "batch", in_step=True))
        torch.manual_seed(seed)
        for module in model.modules():
            module.training = not isinstance(module, Norm)
            if isinstance(module, Calibrated):
                stack.callback(module.register_forward_pre_hook(enter).remove)
                hook = module.dropout.register_forward_hook(partial(leave, module))
                stack.callback(hook.remove)
        run_batch()
