"""Runs a model, and records the calls of its modules, in order."""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.utils._pytree import tree_map

from normlab.any_model.batches.example import Example, Forward, run_model
from normlab.any_model.batches.outputs import Outputs
from normlab.any_model.tracing.restore import State, preserved
from normlab.any_model.tracing.scripted import hooked, is_scripted


@dataclass
class Call:
    """A call of a module. Its tensors are copies, which later in-place operations do not change.

    `name` is the module's path, or its first path if it has several; the model itself has the path
    "". `number` is how often the module was called before.
    """

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None
    number: int = 0

    @property
    def inputs(self) -> tuple[Any, Any]:
        """The positional and the keyword arguments."""
        return self.args, self.kwargs


def inside(name: str, outer: str) -> bool:
    """Return whether the module at one path is inside the module at another."""
    return name != outer and (not outer or name.startswith(f"{outer}."))


class Runner:
    """Runs a model, starting every pass from the same state."""

    def __init__(
        self, model: nn.Module, forward: Forward | None = None, state: State | None = None
    ) -> None:
        self.model, self.forward, self.state = model, forward, state
        self._seed = 0  # if above 0, each pass draws different random numbers

    def __call__(self, example: Example, *contexts: AbstractContextManager[Any]) -> Outputs:
        """Restore the state, enter the contexts, run the model and return its outputs.

        Raises ModelFailed if the model raises an exception, UserError if it returns no float
        tensor.
        """
        self.restore()
        with ExitStack() as stack, torch.no_grad():
            for context in contexts:
                stack.enter_context(context)
            return run_model(self.model, example, self.forward)

    def restore(self) -> None:
        """Restore the state from which every pass starts, except whether gradients are enabled."""
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
        """Draw different random numbers in each pass inside the context."""
        self._seed = 1
        try:
            yield
        finally:
            self._seed = 0

    @contextmanager
    def changed(self, change: Callable[[], object]) -> Iterator[None]:
        """Change the model inside the context, and undo the change afterwards.

        Inside, the state is not restored before each pass.
        """
        self.restore()
        state, self.state = self.state, None
        try:
            with preserved(self.model) if state is None else nullcontext():
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
        """Return the calls of all modules, or of those that `keep` selects, and the outputs.

        Calls are in the order in which they start. A tensor that several modules get is copied only
        once. torch's fused encoder layers are not used, because they do not call their modules.
        """
        calls: list[Call] = []
        outputs = self(example, slow_path(), *contexts, _recording(self.model, calls, keep))
        return calls, outputs


def slow_path() -> AbstractContextManager[None]:
    """Run torch's encoder layers module by module."""
    return fast_path(False)


def uncompiled() -> AbstractContextManager[object]:
    """Run compiled functions of the model eagerly, because compiled ones do not call hooks."""
    compiles = "torch._dynamo" in sys.modules  # importing it takes seconds
    return torch.compiler.set_stance("force_eager") if compiles else nullcontext()


@contextmanager
def fast_path(fast: bool) -> Iterator[None]:
    """Use torch's fused encoder layers where possible if `fast`, else run them module by module."""
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

    Of a scripted module, only calls from Python are recorded, not the calls inside it.
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
