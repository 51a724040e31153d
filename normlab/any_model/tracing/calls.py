"""Runs a model, and records the calls of modules and of functional norms, in order."""

import inspect
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.backends import mha
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from normlab.any_model.batches.example import Example, Forward, run
from normlab.any_model.batches.outputs import Outputs
from normlab.any_model.tracing.restore import State, unchanged
from normlab.any_model.tracing.scripted import hooked, is_scripted

OVER_FEATURES = ("layer_norm", "rms_norm")
OVER_POSITIONS = ("group_norm", "batch_norm", "instance_norm")
FUNCTIONS = [getattr(home, n) for home in (F, torch) for n in (*OVER_FEATURES, *OVER_POSITIONS)]


@dataclass
class Call:
    """One call of a module; its tensors are copies, safe from later in-place changes.

    `name` is the module's path, the first one if it has several; the model itself has "". `number`
    is how often the module was called before.
    """

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None
    number: int = 0

    @property
    def inputs(self) -> tuple[Any, Any]:
        """All arguments."""
        return self.args, self.kwargs


def inside(name: str, outer: str) -> bool:
    """Return whether a module's path is inside another's."""
    return name != outer and (not outer or name.startswith(f"{outer}."))


class Runner:
    """Runs a model; every pass starts from the same state."""

    def __init__(
        self, model: nn.Module, forward: Forward | None = None, state: State | None = None
    ) -> None:
        self.model, self.forward, self.state = model, forward, state
        self._seed = 0  # if above 0, each pass draws different random numbers

    def __call__(self, example: Example, *contexts: AbstractContextManager[Any]) -> Outputs:
        """Restore the state, enter the contexts, and return the outputs of a pass.

        Raises ModelFailed if the model raises an exception, UserError if there is no float tensor.
        """
        self.restore()
        with ExitStack() as stack, torch.no_grad():
            for context in contexts:
                stack.enter_context(context)
            return run(self.model, example, self.forward)

    def restore(self) -> None:
        """Restore the state from which every pass starts, except whether gradients are on."""
        if self.state is not None:
            with torch.set_grad_enabled(torch.is_grad_enabled()):
                self.state.restore()
        if self._seed:
            self._seed += 1
            for seed in (torch.manual_seed, np.random.seed, random.seed):
                seed(self._seed)
            for generator in self.state.snapshot.generators if self.state else ():
                generator.manual_seed(self._seed)

    @contextmanager
    def reseeded(self) -> Iterator[None]:
        """Draw different random numbers in each pass, not the same ones."""
        self._seed = 1
        try:
            yield
        finally:
            self._seed = 0

    @contextmanager
    def changed(self, change: Callable[[], object]) -> Iterator[None]:
        """Change the model for some passes, which keep state between them; undo it afterwards."""
        self.restore()
        state, self.state = self.state, None
        try:
            with unchanged(self.model) if state is None else nullcontext():
                change()
                yield
        finally:
            self.state = state
            self.restore()

    def record(
        self,
        example: Example,
        *contexts: AbstractContextManager[Any],
        keep: Callable[[str, nn.Module], bool] = lambda name, module: True,
    ) -> tuple[list[Call], Outputs]:
        """Return the calls of all modules, or those that `keep` selects, and the outputs.

        Calls are in the order in which they start. A tensor that several modules see is copied
        once. The calls of a pass that fails are lost. torch's fused encoder layers are not used,
        as they call no modules.
        """
        calls: list[Call] = []
        outputs = self(example, slow_path(), *contexts, _recording(self.model, calls, keep))
        return calls, outputs


def slow_path() -> AbstractContextManager[None]:
    """Run torch's encoder layers module by module."""
    return fast_path(False)


@contextmanager
def fast_path(fast: bool) -> Iterator[None]:
    """Use torch's fused encoder layers where possible, or run them module by module."""
    former = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(fast)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(former)


@contextmanager
def _recording(
    model: nn.Module, calls: list[Call], keep: Callable[[str, nn.Module], bool]
) -> Iterator[None]:
    """Append a copy of each call of the selected modules to `calls`.

    Calls inside a scripted module are not recorded, only calls of it from Python.
    """
    under_way: list[Call] = []
    counts: Counter[str] = Counter()
    copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        key = id(value), 0 if value.is_inference() else value._version
        return copies.setdefault(key, (value, value.detach().clone()))[1]

    def enter(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        calls.append(Call(name, module, *tree_map(copy, (args, kwargs)), number=counts[name]))
        under_way.append(calls[-1])
        counts[name] += 1

    def leave(name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        call = under_way.pop()
        call.output = tree_map(copy, output)
        if is_scripted(module):  # its hook before the call gets no kwargs
            call.kwargs = tree_map(copy, kwargs)

    selected = {name: module for name, module in model.named_modules() if keep(name, module)}
    with hooked(selected, enter, leave):
        yield


class Functional(nn.Module):
    """A call of a functional norm as a module; its weight and bias are parameters."""

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
        """Return the function's output; batch norm uses the batch's statistics in training."""
        arguments = {**self.settings, **self._parameters, **self._buffers}
        if "training" in arguments:
            arguments["training"] = self.training or arguments["training"]
        return self.function(x, **arguments)


def _arguments(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by name, defaults included."""
    if isinstance(function, FunctionType):
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    known = getattr(torch.ops.aten, function.__name__).default._schema.arguments
    defaults = {x.name: x.default_value for x in known if x.has_default_value()}
    return {**defaults, **dict(zip((x.name for x in known), args, strict=False)), **kwargs}


class Functionals(TorchFunctionMode):
    """Collects the calls of functional norms in `calls`, named `<calling module>.<function>`.

    Calls inside a recorded function, such as torch.layer_norm in F.layer_norm, do not count, nor do
    calls that normalize a weight (weight standardization).
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._names = {module: name for name, module in model.named_modules()}
        self._weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self.calls: dict[str, Call] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func not in FUNCTIONS:
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
