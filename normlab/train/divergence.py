"""Whether a run has diverged, and where the first value that is not finite appeared.

A run has diverged when the loss or the gradient of a step is not finite, or when the mean loss of
`WINDOW` steps exceeds a multiple of the first step's loss. A step that is not finite is not taken,
so one more forward pass, on the same batch with the same random numbers, finds the first layer
whose output was not finite. How often a run logs changes nothing here.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

WINDOW = 50
"""Steps over which losses are averaged before they are compared with the first loss."""


class Diverged(Exception):
    """Raised when a run diverges: the step, the reason, and the first bad layer if there is one."""

    def __init__(self, step: int, reason: str, layer: str | None):
        super().__init__(f"step {step}: {reason}" + (f" at {layer}" if layer else ""))
        self.step, self.reason, self.layer = step, reason, layer


class Reading(NamedTuple):
    """What `Divergence.add` computed for a step, as numbers: reading it waits for the device."""

    loss: float
    penalty: float
    grad_norm: float

    @property
    def nonfinite(self) -> str | None:
        """What of the step is not finite, in words; None if it may be taken."""
        if not math.isfinite(total := self.loss + self.penalty):
            return f"loss is {total}"
        if not math.isfinite(self.grad_norm):
            return f"gradient norm is {self.grad_norm}"
        return None


class Divergence:
    """Judges losses in windows of `WINDOW` steps, with sums that stay on the device.

    `add` does not wait for the device, so a caller may read the step's values
    (`Reading(*values.tolist())`) a step later; `high` reads the device once per window.
    """

    def __init__(self, factor: float, device: torch.device):
        self.factor = factor
        self._first = torch.tensor(math.nan, dtype=torch.float64, device=device)
        self._sum = torch.zeros((), dtype=torch.float64, device=device)
        self._steps = 0

    def add(self, totals: Tensor, grad_norm: Tensor) -> Tensor:
        """Add a step to the window; return its `totals` and gradient norm as float64 [3].

        `totals` holds the loss and the penalty, float64 [2].
        """
        loss = totals[0]
        self._first = torch.where(self._first.isnan(), loss, self._first)
        self._sum = self._sum + loss
        self._steps += 1
        return torch.cat([totals, grad_norm.double()[None]])

    def high(self, *, last: bool) -> str | None:
        """Return, at the end of a window, why its mean loss is too high; None if it is not.

        The window ends early if this is the `last` step of the run.
        """
        if self._steps < WINDOW and not (last and self._steps):
            return None
        total, first = torch.stack([self._sum, self._first]).tolist()
        mean, limit = total / self._steps, self.factor * first
        self._sum, self._steps = torch.zeros_like(self._sum), 0
        return f"mean loss {mean:.3g} is above {limit:.3g}" if mean > limit else None

    def state_dict(self) -> dict[str, float]:
        """Return the window so far and the first loss."""
        return {"first": float(self._first), "sum": float(self._sum), "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._first = torch.full_like(self._first, state["first"])
        self._sum = torch.full_like(self._sum, state["sum"])
        self._steps = int(state["steps"])


def first_nonfinite_layer(model: nn.Module, forward: Callable[[], object]) -> str | None:
    """Run `forward` and return the name of the first leaf module with a non-finite output."""
    found: list[str] = []

    def watch(name: str, module: nn.Module) -> RemovableHandle:
        def look(_: nn.Module, __: object, output: object) -> None:
            if isinstance(output, Tensor) and not found and not output.isfinite().all():
                found.append(name)

        return module.register_forward_hook(look)

    hooks = [watch(name, m) for name, m in model.named_modules() if not list(m.children())]
    try:
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def first_nonfinite_gradient(model: nn.Module) -> str | None:
    """Return the parameter nearest to the loss (the last one) whose gradient is not finite."""
    bad = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not parameter.grad.isfinite().all()
    ]
    return bad[-1] if bad else None
