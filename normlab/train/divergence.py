"""When a run has diverged, and where it began.

A run has diverged when the loss or the gradient of a step is not finite, or when the mean loss of
a log interval exceeds a multiple of the first step's loss. A step that is not finite is not taken,
so the weights that failed are still there: one more forward pass, on the same batch with the same
random numbers, finds the first layer whose output was not finite. Training is over by then, so that
pass disturbs nothing.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


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
