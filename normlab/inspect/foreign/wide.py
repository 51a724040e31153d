"""Runs a model's forward pass in float64 without converting its weights.

If only the order of summation differs, two results in float64 differ by about 1e-14.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

WIDE = {
    **dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), torch.float64),
    **dict.fromkeys((torch.complex64, torch.complex32), torch.complex128),
}
_aten = torch.ops.aten
_READERS = (_aten.embedding, _aten.index_select, _aten.index, _aten.gather)
"""Operations that read part of a weight: only that part is cast."""
_CHECK_FIRST = (
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    "scaled_dot_product_attention",
)
"""Functions that compare the dtypes of their arguments before they dispatch an operation."""


def wide(value: Any) -> Any:
    """Return float tensors and dtypes, and those in lists, in float64; anything else as it is."""
    if isinstance(value, Tensor):
        return value.to(WIDE[value.dtype]) if value.dtype in WIDE else value
    if isinstance(value, list | tuple):
        return type(value)(map(wide, value))
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


class _Wide(TorchDispatchMode):
    """Casts the tensor and dtype arguments of each operation to float64.

    A view stays a view of the narrow tensor, and is cast by the operation that computes with it.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.is_view and func is not _aten.view.dtype:
            return func(*args, **kwargs)
        if func.overloadpacket in _READERS:
            return wide(func(*args, **kwargs))
        given, named = wide(args), {name: wide(value) for name, value in kwargs.items()}
        if func is _aten._grouped_mm.default:
            return _grouped_mm(*given, **named)
        result = func(*given, **named)
        for number, name in _written(func):
            by_place = number < len(args)
            target = args[number] if by_place else kwargs.get(name)
            if isinstance(target, Tensor) and target.dtype in WIDE:
                target.copy_(given[number] if by_place else named[name])
        return wide(result)


@cache
def _written(func: Any) -> list[tuple[int, str]]:
    """Return the arguments that an operation writes to."""
    arguments = enumerate(func._schema.arguments)
    return [(n, each.name) for n, each in arguments if each.alias_info and each.alias_info.is_write]


def _grouped_mm(x: Tensor, weight: Tensor, offs: Tensor, *_: Any, **__: Any) -> Tensor:
    """Return x[N,K] @ weight[G,K,M], where group g ends at row offs[g] (torch has no float64)."""
    ends = [0, *offs.tolist()]
    parts = [x[a:b] @ w for a, b, w in zip(ends, ends[1:], weight, strict=False)]
    return torch.cat([*parts, x.new_zeros(len(x) - ends[-1], weight.shape[-1])])


@contextmanager
def widened() -> Iterator[None]:
    """Run every floating-point operation in the context in float64, and without autocast.

    Weights are cast one operation at a time, and never copied as a whole.
    """
    with ExitStack() as stack:
        for device in ("cpu", "cuda", "xpu"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        for name in _CHECK_FIRST:
            function = getattr(F, name)
            stack.callback(setattr, F, name, function)
            setattr(F, name, partial(_called_wide, function))
        # A recurrent module compares the dtypes of its input and of its own list of weights.
        recurrent: Any = nn.RNNBase
        stack.callback(delattr, recurrent, "_flat_weights")
        recurrent._flat_weights = property(lambda rnn: wide(rnn.__dict__["_flat_weights"]))
        stack.enter_context(_Wide())
        yield


def _called_wide(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    return function(*wide(args), **{name: wide(value) for name, value in kwargs.items()})
