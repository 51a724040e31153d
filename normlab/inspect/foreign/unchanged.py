"""A context that leaves a model, its inputs and the process as they were, bit for bit."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@contextmanager
def unchanged(model: nn.Module, inputs: Any = ()) -> Iterator[None]:
    """Restore all state on exit, also after an exception or Ctrl-C.

    State is: parameters, buffers and other attributes of all modules (values and identity),
    gradients, `requires_grad`, training modes, hooks, the tensors in `inputs`, the random states
    of torch, CUDA, numpy and Python, and torch's global flags. Buffers and inputs are copied.
    A weight or gradient is copied just before an operation writes to it, so most never are.
    """
    restore = [*_process(), *_modules(model), *_gradients(model)]
    kept = [*model.buffers(), *_attributes(model), *filter(_is_plain, tree_leaves(inputs))]
    restore += [partial(_write, each, each.detach().clone()) for each in kept]
    grads = [each.grad for each in model.parameters() if each.grad is not None]
    writes = _Writes([*model.parameters(), *grads])
    try:
        with writes:
            yield
    finally:
        for step in [*restore, *writes.undo]:
            step()


class _Writes(TorchDispatchMode):
    """Copy a weight when an operation is about to write to it for the first time."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__()
        self._weights = {w.untyped_storage().data_ptr(): w for w in weights if _is_plain(w)}
        self.undo: list[Callable[[], object]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func._schema.is_mutable:
            for each in tree_leaves((args, kwargs)):
                if _is_plain(each):
                    weight = self._weights.pop(each.untyped_storage().data_ptr(), None)
                    if weight is not None:
                        self.undo.append(partial(_write, weight, weight.detach().clone()))
        return func(*args, **(kwargs or {}))


def _is_plain(value: Any) -> bool:
    """Return whether a value is a tensor in memory."""
    return isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta


def _write(target: Tensor, values: Tensor) -> None:
    target.data.copy_(values)  # `.data`: autograd's version of the tensor stays the same


def _attributes(model: nn.Module) -> list[Tensor]:
    """Return the tensors that modules keep as plain attributes, or in a list or dict."""
    parts = ("_parameters", "_buffers", "_modules")
    values = [{k: v for k, v in m.__dict__.items() if k not in parts} for m in model.modules()]
    return [each for each in tree_leaves(values) if _is_plain(each) and each.grad_fn is None]


def _modules(model: nn.Module) -> list[Callable[[], object]]:
    """Return steps that restore each module's attributes, and the content of containers in them.

    Parameters, buffers, hooks and the training mode are such attributes.
    """
    steps: list[Callable[[], object]] = []
    for module in model.modules():
        for value in (module.__dict__, *module.__dict__.values()):
            if isinstance(value, dict):
                steps.append(partial(_refill, value, dict(value)))
            elif isinstance(value, set):
                steps.append(partial(_refill, value, set(value)))
            elif isinstance(value, list):
                steps.append(partial(value.__setitem__, slice(None), list(value)))
    return steps


def _refill(container: Any, content: Any) -> None:
    container.clear()
    container.update(content)


def _gradients(model: nn.Module) -> list[Callable[[], object]]:
    steps: list[Callable[[], object]] = []
    for weight in model.parameters():
        steps.append(partial(weight.requires_grad_, weight.requires_grad))
        steps.append(partial(setattr, weight, "grad", weight.grad))
    return steps


_FLAGS = (
    *((torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    (torch.backends.mkldnn, "enabled"),
)
_SETTINGS = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.get_rng_state, torch.set_rng_state),
    (np.random.get_state, np.random.set_state),
    (random.getstate, random.setstate),
)


def _process() -> list[Callable[[], object]]:
    """Return steps that restore torch's flags and all random states."""
    steps: list[Callable[[], object]] = [partial(set_, get()) for get, set_ in _SETTINGS]
    steps += [partial(_set, owner, name, getattr(owner, name)) for owner, name in _FLAGS]
    for device in ("cpu", "cuda"):
        enabled = torch.is_autocast_enabled(device)
        steps.append(partial(torch.set_autocast_enabled, device, enabled))
    if torch.cuda.is_initialized():
        states = torch.cuda.get_rng_state_all()
        steps.append(partial(torch.cuda.set_rng_state_all, states))
    return steps


def _set(owner: Any, name: str, value: Any) -> None:
    if getattr(owner, name) != value:
        setattr(owner, name, value)
