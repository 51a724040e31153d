"""Runs a model's forward pass in float64 without converting its weights.

If only the order of summation differs, two results in float64 differ by about 1e-14.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

WIDE = {
    **dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), torch.float64),
    **dict.fromkeys((torch.complex64, torch.complex32), torch.complex128),
}
_aten = torch.ops.aten
_READERS = (_aten.embedding, _aten.index_select, _aten.index, _aten.gather)
"""Operations that read part of a weight: they get the weight uncast, and their result is cast."""
_READING = (F.embedding, F.embedding_bag)
"""Functions that read part of a weight: they get the weight uncast."""
_dtype_of = torch.Tensor.dtype.__get__  # pyright: ignore[reportAttributeAccessIssue]


def wide(value: Any) -> Any:
    """Convert float tensors and dtypes, also in lists, to float64; leave anything else as it is."""
    if isinstance(value, Tensor):
        return value.to(wider) if (wider := WIDE.get(value.dtype)) else value
    if isinstance(value, list | tuple):
        return type(value)(map(wide, value))
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _narrow(value: Any) -> Any:
    """Convert float64 tensors and dtypes, also in lists, to float32."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype == torch.float64 else value
    if isinstance(value, list | tuple):
        return type(value)(map(_narrow, value))
    return torch.float32 if value is torch.float64 else value


class Float64(TorchDispatchMode):
    """Casts the tensor and dtype arguments of each operation to float64.

    A view stays a view of the original tensor, and is cast when an operation computes with it. An
    operation that does not support float64 runs in float32, and its name is added to `narrowed`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.narrowed: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap each call of `__torch_dispatch__`, which doubles its cost

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if _is_view(func):
            return func(*args, **kwargs)
        if func.overloadpacket in _READERS:
            return wide(func(*args, **kwargs))
        if func is _aten._grouped_mm.default:
            return _grouped_mm(*wide(args), **{name: wide(x) for name, x in kwargs.items()})
        try:
            return wide(_cast(wide, func, args, kwargs))
        except (RuntimeError, NotImplementedError) as error:
            try:
                result = _cast(_narrow, func, args, kwargs)
            except Exception:
                raise error from None  # the operation fails in any dtype
            self.narrowed.add(func.name())
            return wide(result)


@cache
def _is_view(func: Any) -> bool:
    """Return whether an operation returns part of a tensor in the same dtype."""
    return func.is_view and func is not _aten.view.dtype


def _cast(cast: Callable[[Any], Any], func: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """Call an operation with its arguments cast; copy what it writes to the original tensors."""
    cast_args, cast_kwargs = (
        cast(tuple(args)),
        {name: cast(value) for name, value in kwargs.items()},
    )
    result = func(*cast_args, **cast_kwargs)
    for number, name in _written(func):
        target, source = (
            (args[number], cast_args[number])
            if number < len(args)
            else (kwargs.get(name), cast_kwargs.get(name))
        )
        if isinstance(target, Tensor) and isinstance(source, Tensor) and target is not source:
            target.copy_(source)
    return result


class _Functions(TorchFunctionMode):
    """Makes every tensor look like float64 to Python, and casts what functions compare.

    Convolutions, attention and recurrent layers compare the dtypes of their arguments before they
    dispatch an operation, so these arguments are cast first. Only this thread is affected.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _dtype_of:
            return WIDE.get(dtype := func(*args, **kwargs), dtype)
        if _compares(func) and not kwargs.get("inplace"):
            args, kwargs = wide(tuple(args)), {name: wide(x) for name, x in kwargs.items()}
        return func(*args, **kwargs)


@cache
def _compares(func: Any) -> bool:
    """Return whether a function may compare the dtypes of its arguments."""
    if isinstance(func, FunctionType):  # the functions that it calls are unknown
        return func.__module__.startswith("torch") and func not in _READING
    name = getattr(func, "__name__", "")
    return name.startswith(("conv", "lstm", "gru", "rnn_", "scaled_dot_product_attention"))


@cache
def _written(func: Any) -> list[tuple[int, str]]:
    """Return the arguments that an operation writes to."""
    arguments = enumerate(func._schema.arguments)
    return [(n, each.name) for n, each in arguments if each.alias_info and each.alias_info.is_write]


def _grouped_mm(x: Tensor, weight: Tensor, offs: Tensor, *_: Any, **__: Any) -> Tensor:
    """Return x[N,K] @ weight[G,K,M], where group g ends at row offs[g] (torch's has no float64)."""
    ends = [0, *offs.tolist()]
    parts = [x[a:b] @ w for a, b, w in zip(ends, ends[1:], weight, strict=False)]
    return torch.cat([*parts, x.new_zeros(len(x) - ends[-1], weight.shape[-1])])


@contextmanager
def widened() -> Iterator[Float64]:
    """Run every floating-point operation of this thread in float64, and without autocast.

    Weights are cast one operation at a time, and never copied as a whole.
    """
    with ExitStack() as stack:
        for device in ("cpu", "cuda", "xpu"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(_Functions())
        yield stack.enter_context(Float64())
