"""A forward pass in float64 of a model whose weights stay as they are.

The difference between two results in float64 is at most about 1e-14 if they differ by the order of
summation alone, so a larger one is a leak.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

WIDE = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
_aten = torch.ops.aten
_READERS = (_aten.embedding, _aten.index_select, _aten.index, _aten.gather)
"""Operations that read part of a weight: the part is cast, not the weight."""

_CHECK_FIRST = (
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    "scaled_dot_product_attention",
)
"""Functions that compare the dtypes of their arguments before they dispatch an operation."""


def can_widen(device: torch.device) -> bool:
    """Return whether a device computes in float64."""
    return device.type != "mps"


def wide(value: Any) -> Any:
    """Return a floating-point tensor or dtype in float64, anything else as it is."""
    if isinstance(value, Tensor):
        return value.to(WIDE[value.dtype]) if value.dtype in WIDE else value
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


class _Wide(TorchDispatchMode):
    """Cast the arguments of each operation to float64, one operation at a time.

    dtypes among the arguments are widened too, so a cast to float32 becomes a cast to float64. A
    view stays a view of the narrow tensor, and the operation that computes with it casts it.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.is_view and func is not _aten.view.dtype:
            return func(*args, **kwargs)
        if func.overloadpacket in _READERS:
            return tree_map(wide, func(*args, **kwargs))
        if func is _aten._grouped_mm.default:  # mixtures of experts; it has no float64
            return _grouped_mm(*tree_map(wide, tuple(args)), **tree_map(wide, kwargs))
        written = _written(func)
        targets = [
            (position, args[position] if isinstance(position, int) else kwargs.get(position))
            for position in written
            if isinstance(position, str) or position < len(args)
        ]
        args, kwargs = tree_map(wide, (tuple(args), kwargs))
        result = func(*args, **kwargs)
        for position, target in targets:
            if isinstance(target, Tensor) and target.dtype in WIDE:
                target.copy_(args[position] if isinstance(position, int) else kwargs[position])
        return tree_map(wide, result)


def _grouped_mm(
    x: Tensor, weight: Tensor, offs: Tensor, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """Return x[N,K] @ weight[G,K,M], where group g is the rows of x up to offs[g]."""
    ends = [0, *offs.tolist(), len(x)]
    groups = [x[a:b] @ w for a, b, w in zip(ends, ends[1:], weight, strict=False)]
    y = torch.cat([*groups, x.new_zeros(ends[-1] - ends[-2], weight.shape[-1])])
    return y if bias is None else y + bias


@cache
def _written(func: Any) -> list[int | str]:
    """Return which arguments an operation writes to, by position or name."""
    arguments = enumerate(func._schema.arguments)
    return [
        each.name if each.kwarg_only else number
        for number, each in arguments
        if each.alias_info is not None and each.alias_info.is_write
    ]


@contextmanager
def widened() -> Iterator[None]:
    """Run every floating-point operation in the context in float64, and without autocast.

    Weights are cast one operation at a time, so the peak memory grows by the widest activations
    and by one operation's weights.
    """
    with ExitStack() as stack:
        for device in ("cpu", "cuda", "xpu"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        former: dict[nn.Module, Any] = {}

        def enter(module: nn.Module, _: Any) -> None:
            if isinstance(module, nn.RNNBase):  # it compares the dtypes of input and weights
                former[module] = module._flat_weights
                module._flat_weights = [wide(weight) for weight in former[module]]

        def leave(module: nn.Module, *_: Any) -> None:
            if module in former:
                setattr(module, "_flat_weights", former.pop(module))  # noqa: B010

        for name in _CHECK_FIRST:
            function = getattr(F, name)
            stack.callback(setattr, F, name, function)
            setattr(F, name, partial(_called_wide, function))
        stack.callback(register_module_forward_pre_hook(enter).remove)
        stack.callback(register_module_forward_hook(leave, always_call=True).remove)
        stack.enter_context(_Wide())
        yield


def _called_wide(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    return function(*tree_map(wide, args), **tree_map(wide, kwargs))
