"""Records calls of functional norms, such as `F.layer_norm`, as if they were calls of modules."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normlab.any_model.tracing.calls import Call

OVER_FEATURES = ("layer_norm", "rms_norm")
OVER_POSITIONS = ("group_norm", "batch_norm", "instance_norm")
NORM_OPERATIONS = (*OVER_FEATURES, *OVER_POSITIONS)
NORM_FUNCTIONS = [getattr(home, name) for home in (F, torch) for name in NORM_OPERATIONS]


class Functionals(TorchFunctionMode):
    """Collects calls of functional norms in `calls`, keyed by `<calling module>.<function>`.

    Calls inside a recorded function, such as torch.layer_norm in F.layer_norm, are left out, and so
    are calls that normalize a weight (weight standardization).
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._names = {module: name for name, module in model.named_modules()}
        self._weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self.calls: dict[str, Call] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func not in NORM_FUNCTIONS:
            return output
        arguments, frame = _arguments(func, args, kwargs or {}), sys._getframe(1)
        x = arguments.pop("input")
        if x.untyped_storage().data_ptr() not in self._weights:
            while frame and not isinstance(frame.f_locals.get("self"), nn.Module):
                frame = frame.f_back
            caller = self._names.get(frame.f_locals["self"], "") if frame else ""
            name = first = f"{caller}.{func.__name__}".lstrip(".")
            while name in self.calls:
                name = f"{first}#{int(name.partition('#')[2] or 1) + 1}"
            x = x.detach().clone()
            self.calls[name] = Call(name, Functional(func, arguments), (x,), {}, output)
        return output


def functions_in_words(model: nn.Module, call: Callable[[], Any]) -> str:
    """Return which norms a forward pass calls as functions, to be added to a sentence, or ""."""
    with Functionals(model) as functions:
        call()
    names = [*functions.calls]
    if not names:
        return ""
    shown = f"{', '.join(names[:3])}{' ...' * (len(names) > 3)}"
    return f"; it calls norms as functions ({shown}), and only modules can be changed"


class Functional(nn.Module):
    """A call of a functional norm as a module, with its weight and bias as parameters."""

    def __init__(self, function: Callable[..., Tensor], arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.function, self.settings, self.eps = function, dict(arguments), arguments["eps"]
        for name in {"weight", "bias"} & arguments.keys():
            value = self.settings.pop(name)
            parameter = None if value is None else nn.Parameter(value.detach(), requires_grad=False)
            self.register_parameter(name, parameter)
        for name in {"running_mean", "running_var"} & arguments.keys():
            self.register_buffer(name, self.settings.pop(name))

    @property
    def kind(self) -> str:
        """The function's name: `F.layer_norm` or `torch.layer_norm`."""
        home = "F" if isinstance(self.function, FunctionType) else "torch"
        return f"{home}.{self.function.__name__}"

    def forward(self, x: Tensor) -> Tensor:
        """Return the function's output. In training mode, batch norm uses batch statistics."""
        arguments = {**self.settings, **self._parameters, **self._buffers}
        if "training" in arguments:
            arguments["training"] = self.training or arguments["training"]
        return self.function(x, **arguments)


def _arguments(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call, including defaults, keyed by name."""
    if isinstance(function, FunctionType):
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    known = getattr(torch.ops.aten, function.__name__).default._schema.arguments
    defaults = {x.name: x.default_value for x in known if x.has_default_value()}
    return {**defaults, **dict(zip((x.name for x in known), args, strict=False)), **kwargs}
