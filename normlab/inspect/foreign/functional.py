"""Records functional norms, such as `F.layer_norm`, as if they were calls of modules."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normlab.inspect.foreign.calls import Call

FUNCTIONS = (F.layer_norm, F.rms_norm, F.group_norm, F.batch_norm, F.instance_norm)


class Functional(nn.Module):
    """A call of a functional norm as a module; its weight and bias are parameters."""

    def __init__(self, function: Callable[..., Tensor], given: Mapping[str, Any]) -> None:
        super().__init__()
        self.function, self.given, self.eps = function, dict(given), given["eps"]
        for name in ("weight", "bias"):
            if isinstance(value := self.given.pop(name, None), Tensor):
                self.register_parameter(name, nn.Parameter(value.detach(), requires_grad=False))
        for name in ("running_mean", "running_var"):
            if name in self.given:
                self.register_buffer(name, self.given.pop(name))

    def forward(self, x: Tensor) -> Tensor:
        """Return the function's output; batch norm uses the batch's statistics in training."""
        given = {**self.given, **self._parameters, **self._buffers}
        if self.function is F.batch_norm:
            given["training"] = self.training or given["training"]
        return self.function(x, **given)


class Functionals(TorchFunctionMode):
    """Collects the calls of functional norms in `found`, named `<calling module>.<function>`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._names = {module: name for name, module in model.named_modules()}
        self.found: dict[str, Call] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func in FUNCTIONS:
            bound = inspect.signature(func).bind(*args, **(kwargs or {}))
            bound.apply_defaults()
            given, frame = dict(bound.arguments), sys._getframe(1)
            while frame and not isinstance(frame.f_locals.get("self"), nn.Module):
                frame = frame.f_back
            caller = self._names.get(frame.f_locals["self"], "") if frame else ""
            name = first = f"{caller}.{func.__name__}".lstrip(".")
            while name in self.found:
                name = f"{first}#{int(name.partition('#')[2] or 1) + 1}"
            x = given.pop("input").detach().clone()
            self.found[name] = Call(name, Functional(func, given), (x,), {}, output)
        return output
