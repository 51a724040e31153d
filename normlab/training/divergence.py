"""Decides whether a run has diverged, and finds the first layer that is not finite.

A run has diverged when the loss or the gradient of a step is not finite, or when the mean loss of
`WINDOW` steps exceeds a multiple of the first step's loss. The weights are not updated in a step
that is not finite, so that one more forward pass, on the same batch with the same random numbers,
can find the first layer whose output was not finite.

Steps are checked when a row is logged. Until then their losses stay on the device, so that no step
waits for it. If one of them diverged, the trainer goes back to the state after the last row, and
repeats the steps, checking each before the next (`Trainer.step`). A run's record therefore does not
depend on how often it logs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from normlab.distributed.process_group import gather_objects

WINDOW = 50
"""The number of steps whose mean loss is compared with the first loss."""


class Diverged(Exception):
    """Raised when a run diverges, with the step, the reason, and the first bad layer, if known."""

    def __init__(self, step: int, reason: str, layer: str | None):
        super().__init__(f"step {step}: {reason}" + (f" at {layer}" if layer else ""))
        self.step, self.reason, self.layer = step, reason, layer


class Verdict(NamedTuple):
    """The first step that diverged, and the reason.

    `taken` says whether its update was made, which is so if its loss and gradient were finite.
    """

    step: int
    reason: str
    taken: bool


class Reading(NamedTuple):
    """The values of a step as numbers. Reading them waits for the device."""

    step: int
    loss: float
    penalty: float
    grad_norm: float

    @property
    def nonfinite(self) -> str | None:
        """The value of the step that is not finite, as text, or None if the step may be taken."""
        if not math.isfinite(total := self.loss + self.penalty):
            return f"loss is {total}"
        if not math.isfinite(self.grad_norm):
            return f"gradient norm is {self.grad_norm}"
        return None


class Divergence:
    """Collects the losses and gradient norms of steps, and finds those that diverged.

    The values stay on the device until they are read. `add` and `end_window` never wait for the
    device, and `read` and `high` wait once.
    """

    def __init__(self, factor: float, device: torch.device):
        self.factor = factor
        self._first = torch.tensor(math.nan, dtype=torch.float64, device=device)
        self._sum = torch.zeros((), dtype=torch.float64, device=device)
        self._steps = 0
        self._values: list[tuple[int, Tensor]] = []
        self._windows: list[tuple[int, int, Tensor]] = []

    @property
    def first_loss(self) -> float | None:
        """The loss of the first step, before its update, or None if it was not finite."""
        first = float(self._first)
        return first if math.isfinite(first) else None

    def add(self, step: int, totals: Tensor, grad_norm: Tensor) -> None:
        """Add a step to the current window. `totals` has its loss and penalty, float64 [2]."""
        self._first = torch.where(self._first.isnan(), totals[0], self._first)
        self._sum = self._sum + totals[0]
        self._steps += 1
        self._values.append((step, torch.cat([totals, grad_norm.double()[None]])))

    def read(self) -> list[Reading]:
        """Return the steps added since the last call, in one transfer from the device."""
        values, self._values = self._values, []
        if not values:
            return []
        rows = torch.stack([value for _, value in values]).tolist()
        return [Reading(step, *row) for (step, _), row in zip(values, rows, strict=True)]

    def end_window(self, step: int, *, last: bool) -> None:
        """End the window after `step` if it is full, or if this is the `last` step of the run."""
        if self._steps >= WINDOW or (last and self._steps):
            self._windows.append((step, self._steps, torch.stack([self._sum, self._first])))
            self._sum, self._steps = torch.zeros_like(self._sum), 0

    def high(self) -> Verdict | None:
        """Return a verdict on the first window since the last call whose mean loss is too high."""
        windows, self._windows = self._windows, []
        if not windows:
            return None
        rows = torch.stack([values for *_, values in windows]).tolist()
        for (step, steps, _), (total, first) in zip(windows, rows, strict=True):
            mean, limit = total / steps, self.factor * first
            if mean > limit:
                return Verdict(step, f"mean loss {mean:.3g} is above {limit:.3g}", taken=True)
        return None

    def state_dict(self) -> dict[str, float]:
        """Return the current window and the first loss. All steps must have been read before."""
        return {"first": float(self._first), "sum": float(self._sum), "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state returned by `state_dict`."""
        self._first = torch.full_like(self._first, state["first"])
        self._sum = torch.full_like(self._sum, state["sum"])
        self._steps = int(state["steps"])


def first_nonfinite_layer(model: nn.Module, forward: Callable[[], object]) -> str | None:
    """Run `forward` and return the name of the first leaf module with a non-finite output."""
    layers: list[str] = []

    def watch(name: str, module: nn.Module) -> RemovableHandle:
        def look(_: nn.Module, __: object, output: object) -> None:
            if isinstance(output, Tensor) and not layers and not output.isfinite().all():
                layers.append(name)

        return module.register_forward_hook(look)

    hooks = [watch(name, m) for name, m in model.named_modules() if not list(m.children())]
    try:
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return layers[0] if layers else None


def first_nonfinite_layer_of_ranks(
    model: nn.Module, forwards: Sequence[Callable[[], object]]
) -> str | None:
    """Return the first layer with a non-finite output in any rank's forward passes.

    All ranks must call this, whichever rank failed, because synced norms wait for all of them.
    """
    local = [first_nonfinite_layer(model, forward) for forward in forwards]
    layers = (layer for of_rank in gather_objects(local) for layer in of_rank)
    return next((layer for layer in layers if layer is not None), None)


def first_nonfinite_gradient(model: nn.Module) -> str | None:
    """Return the last parameter (the nearest to the loss) whose gradient is not finite."""
    bad = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not parameter.grad.isfinite().all()
    ]
    return bad[-1] if bad else None
