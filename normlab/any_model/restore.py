"""A context that restores a model, its inputs and the process's state, bit for bit."""

import random
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.backends import cuda, cudnn, mha, mkldnn
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.any_model.example import tensors

Steps = list[Callable[[], object]]
_SETTINGS = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_num_threads, torch.set_num_threads),
    (mha.get_fastpath_enabled, mha.set_fastpath_enabled),
    (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    (cuda.math_sdp_enabled, cuda.enable_math_sdp),
    (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
    (torch.get_rng_state, torch.set_rng_state),
    (np.random.get_state, np.random.set_state),
    (random.getstate, random.setstate),
)
_FLAGS = (
    *((cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
    *((cuda.matmul, f"allow_{name}_reduced_precision_reduction") for name in ("bf16", "fp16")),
    *((cuda.matmul, "allow_tf32"), (mkldnn, "enabled")),
)


@contextmanager
def unchanged(model: nn.Module, inputs: Any = ()) -> Iterator[None]:
    """Restore all state on exit, even after an exception or Ctrl-C.

    State is: parameters, buffers and other attributes of all modules (values and identity),
    gradients, `requires_grad`, training modes, hooks, the tensors in `inputs`, the random states
    of torch, CUDA, numpy and Python, and torch's global flags. Buffers and inputs are copied.
    A weight or gradient is copied just before an operation writes to it, so most never are.

    Ctrl-C raises KeyboardInterrupt at the next operation of torch, so that no context in between
    is left half entered or half restored. A second one raises at once, unless state is being
    restored.
    """
    weights = [*model.parameters()]
    guard = _Guard([*weights, *(w.grad for w in weights if w.grad is not None)])
    restore: Steps = [*_modules(model), *_process()]
    for w in weights:
        restore += [partial(w.requires_grad_, w.requires_grad), partial(setattr, w, "grad", w.grad)]
    for x in tensors([*map(vars, model.modules()), inputs]):
        if _in_memory(x) and not isinstance(x, nn.Parameter):
            restore.append(partial(x.data.copy_, x.detach().clone()))
    with guard.interrupts():
        try:
            with guard:
                yield
        finally:
            guard.restoring = True
            for step in (*restore, *guard.undo):
                step()


class _Guard(TorchDispatchMode):
    """Copies a weight before it is first written to, and raises Ctrl-C only between operations."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__()
        self._kept: dict[int, list[Tensor]] = defaultdict(list)  # by storage: weights may share one
        for w in filter(_in_memory, weights):
            self._kept[w.untyped_storage().data_ptr()].append(w)
        self.undo: Steps = []
        self.restoring = False
        self._pressed: Callable[[], object] | None = None  # runs the former Ctrl-C handler

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        self._raise()
        if func._schema.is_mutable:
            for x in filter(_in_memory, tensors((args, kwargs))):
                for w in self._kept.pop(x.untyped_storage().data_ptr(), ()):
                    self.undo.append(partial(w.data.copy_, w.detach().clone()))
        return func(*args, **(kwargs or {}))

    def _raise(self) -> None:
        if pressed := self._pressed:
            self._pressed = None
            pressed()

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """Delay Ctrl-C in the main thread, the only one that it interrupts."""
        former = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(former):
            yield
            return

        def press(number: int, frame: Any) -> None:
            again, self._pressed = self._pressed, partial(former, number, frame)
            if again and not self.restoring:
                self._raise()

        signal.signal(signal.SIGINT, press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, former)
            self._raise()


def _in_memory(value: Tensor) -> bool:
    return value.layout == torch.strided and not value.is_meta


def _modules(model: nn.Module) -> Steps:
    """Return steps that restore each module's attributes, including dicts, sets and lists.

    This covers parameters, buffers, hooks and the training mode.
    """
    steps: Steps = []
    for module in model.modules():
        for value in (module.__dict__, *module.__dict__.values()):
            if isinstance(value, dict | set | list):
                steps.append(partial(_refill, value, value.copy()))
    return steps


def _refill(container: Any, former: Any) -> None:
    container.clear()
    (container.extend if isinstance(container, list) else container.update)(former)


def _process() -> Steps:
    """Return steps that restore torch's flags and all random states."""
    steps: Steps = [partial(set_, get()) for get, set_ in _SETTINGS]
    for owner, name in _FLAGS:
        with suppress(RuntimeError):  # raised if tf32 was set through both of torch's APIs
            steps.append(partial(setattr, owner, name, getattr(owner, name)))
    for device in ("cpu", "cuda"):
        enabled = torch.is_autocast_enabled(device)
        steps.append(partial(torch.set_autocast_enabled, device, enabled))
    if torch.cuda.is_initialized():
        steps.append(partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return steps
