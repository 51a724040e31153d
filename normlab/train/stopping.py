"""When a run ends: by its budget, a divergence or a signal.

A run has diverged when the loss or the gradient of a step is not finite, or when the mean loss of a
log interval exceeds a multiple of the first step's loss. A step that is not finite is not taken, so
one more forward pass, on the same batch with the same random numbers, finds the first layer whose
output was not finite.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


@dataclass(frozen=True)
class Budget:
    """Limits of a run; None is no limit, and at least one is set.

    `tokens` counts target tokens. With a limit in minutes the number of steps depends on the
    machine.
    """

    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    minutes: float | None = None

    def __post_init__(self):
        limits = vars(self)
        if all(limit is None for limit in limits.values()):
            raise ValueError("budget: set at least one of budget.steps, epochs, tokens, minutes")
        for name, limit in limits.items():
            if limit is not None and limit <= 0:
                raise ValueError(f"budget.{name}={limit} must be above 0")

    def spent(self, *, steps: int, epochs: float, tokens: int, seconds: float) -> str | None:
        """Return the name of the limit that is reached, or None."""
        used = {"steps": steps, "epochs": epochs, "tokens": tokens, "minutes": seconds / 60}
        for name, limit in vars(self).items():
            if limit is not None and used[name] >= limit:
                return name
        return None


class Diverged(Exception):
    """The end of a run that blew up: the step that was not taken, why, and the first bad layer."""

    def __init__(self, step: int, reason: str, layer: str | None):
        super().__init__(f"step {step}: {reason}" + (f" at {layer}" if layer else ""))
        self.step, self.reason, self.layer = step, reason, layer


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
    """Return the parameter nearest the loss (last in order) whose gradient is not finite."""
    bad = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not parameter.grad.isfinite().all()
    ]
    return bad[-1] if bad else None


class Interrupts:
    """While entered, remember SIGTERM or Ctrl-C for the loop; a second signal acts at once."""

    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        for number in self.SIGNALS:
            try:
                self._former[number] = signal.signal(number, self._remember)
            except ValueError:  # not the main thread: the host program handles signals
                return self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        signal.signal(number, self._former[number])
