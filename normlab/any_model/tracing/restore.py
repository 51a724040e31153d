"""Contexts that restore a model, its inputs and the process's state, bit for bit."""

import random
import signal
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.backends import cuda, cudnn, mha, mkldnn
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.any_model.batches.outputs import tensors
from normlab.any_model.tracing.snapshot import Snapshot, in_memory, state_step

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
def preserved(model: nn.Module, inputs: Any = ()) -> "Iterator[State]":
    """Restore all state on exit, even after an exception or Ctrl-C.

    State is everything that the model, the `inputs` and the objects that they refer to hold (see
    `Snapshot`): parameters, buffers, gradients, `requires_grad`, training modes, hooks and caches.
    It includes the random states of torch, CUDA, numpy and Python, and torch's global flags. Only
    what has changed is written to. If an object cannot be restored, the others still are, and
    `State.refused` has a line about it. A tensor is copied only just before an operation writes to
    it, so most tensors are never copied.

    Ctrl-C raises KeyboardInterrupt at the next operation of torch, so that no context is left half
    entered or half restored. A second Ctrl-C raises it immediately, unless state is being restored.
    """
    state = State([("", model), ("inputs", inputs)])
    with state.guard.interrupts():
        try:
            with state.guard:
                yield state
        finally:
            state.guard.restoring = True
            state.refused = state.restore(end=True)
            if state.refused:
                warnings.warn(f"not restored: {'; '.join(state.refused)}", stacklevel=3)


class State:
    """The state of a model, its inputs and the process, which can be restored at any time.

    A state inside an `outer` one shares its guard if no tensor has changed in between, because each
    guard costs one Python call per operation.
    """

    def __init__(self, roots: Sequence[tuple[str, Any]], outer: "State | None" = None) -> None:
        self.snapshot = Snapshot(roots)
        tensors = self.snapshot.tensors
        self.shares_guard = outer is not None and outer.guard.covers(tensors)
        self.guard = outer.guard if outer and self.shares_guard else Guard(tensors)
        self._process = _process()
        held = (x for x in tensors if not (outer or isinstance(x, nn.Parameter)))
        self._copies = [(x, x.detach().clone()) for x in held if in_memory(x)]
        self.refused: list[str] = []
        """One line for each object that could not be restored at the end."""

    def restore(self, *, end: bool = False) -> list[str]:
        """Restore what has changed. Return one line for each object that could not be restored.

        At the `end`, buffers and inputs are also compared with copies, because the schema of a
        kernel may not say that it writes to them.
        """
        former, self.guard.restoring = self.guard.restoring, True
        try:
            refused = [*self.snapshot.restore(), *self.guard.restore()]
            for x, copy in self._copies if end else []:
                if not torch.equal(x, copy):
                    x.data.copy_(copy)
            for step in self._process:
                try:
                    step()
                except Exception as error:
                    refused.append(f"a setting of the process: {error}")
        finally:
            self.guard.restoring = former
        return refused


class Guard(TorchDispatchMode):
    """Copies a tensor before the first write to it, and delays Ctrl-C until an operation ends."""

    def __init__(self, watched: Sequence[Tensor]) -> None:
        super().__init__()
        self._ids = {*map(id, watched)}
        # by storage, which several tensors may share
        self._watched: dict[int, list[Tensor]] = defaultdict(list)
        for w in filter(in_memory, watched):
            self._watched[w.untyped_storage().data_ptr()].append(w)
        self._former: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self._written: set[int] = set()
        self.restoring = False
        self._pressed: Callable[[], object] | None = None  # calls the original Ctrl-C handler

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap each call of `__torch_dispatch__`, which doubles its cost

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if not self.restoring:
            if self._pressed:
                self._raise()
            if _writes(func):
                self._copy(args, kwargs)
        return func(*args, **(kwargs or {}))

    def _copy(self, *args: Any) -> None:
        """Copy the watched tensors that an operation is about to write to."""
        for x in filter(in_memory, tensors(args)):
            place = x.untyped_storage().data_ptr()
            if place in self._watched:
                self._written.add(place)
                if place not in self._former:
                    former = [(w.data, w.detach().clone()) for w in self._watched[place]]
                    self._former[place] = former

    def covers(self, watched: Sequence[Tensor]) -> bool:
        """Return whether the guard watches all these tensors, and none has been written to."""
        return not self._written and self._ids >= {*map(id, watched)}

    def restore(self) -> list[str]:
        """Copy the original values into the tensors that were written to since the last call.

        Returns one line for each tensor that could not be restored.
        """
        refused: list[str] = []
        for place in [*self._written]:
            for data, former in self._former[place]:
                try:
                    data.copy_(former)
                except Exception as error:
                    refused.append(f"a tensor {[*former.shape]}: {error}")
        self._written.clear()
        return refused

    def _raise(self) -> None:
        if pressed := self._pressed:
            self._pressed = None
            pressed()

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """Delay Ctrl-C in the main thread, which is the only thread that it interrupts."""
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


@cache
def _writes(func: Any) -> bool:
    """Return whether an operation writes to an argument.

    Batch norm is a special case: its schema does not say that it updates running statistics.
    """
    return func._schema.is_mutable or "batch_norm" in func._schema.name


def _process() -> list[Callable[[], object]]:
    """Return steps that restore torch's flags and all random states."""
    steps: list[Callable[[], object]] = [state_step(get, set_) for get, set_ in _SETTINGS]
    for owner, name in _FLAGS:
        with suppress(RuntimeError):  # raised if tf32 was set through both of torch's APIs
            steps.append(state_step(partial(getattr, owner, name), partial(setattr, owner, name)))
    for device in ("cpu", "cuda"):
        enabled = partial(torch.is_autocast_enabled, device)
        steps.append(state_step(enabled, partial(torch.set_autocast_enabled, device)))
    if torch.cuda.is_initialized():
        steps.append(state_step(torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all))
    return steps
