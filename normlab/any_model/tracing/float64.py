"""Runs a model's forward pass in float64 without converting its weights.

Two results that differ only in the order of summation differ by about 1e-14 in float64.
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

WIDE_DTYPES = {
    **dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), torch.float64),
    **dict.fromkeys((torch.complex64, torch.complex32), torch.complex128),
}
_aten = torch.ops.aten
_READERS = (_aten.embedding, _aten.index_select, _aten.index, _aten.gather)
"""Operations that read part of a weight. The weight is not cast, but the result is."""
_READING = (F.embedding, F.embedding_bag)
"""Functions that read part of a weight. The weight is not cast."""
_dtype_of = torch.Tensor.dtype.__get__  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def float64_operations() -> "Iterator[Float64]":
    """Run every floating-point operation of this thread in float64, and without autocast.

    Weights are cast one operation at a time, and never copied as a whole.
    """
    with ExitStack() as stack:
        for device in ("cpu", "cuda", "xpu"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(_Functions())
        yield stack.enter_context(Float64())


class Float64(TorchDispatchMode):
    """Casts the tensor and dtype arguments of each operation to float64.

    A view remains a view of the original tensor, and is cast when an operation computes with it. An
    operation that does not support float64 is run in float32, and its name is added to
    `without_float64`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.without_float64: set[str] = set()

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
            return to_float64(func(*args, **kwargs))
        if func is _aten._grouped_mm.default:
            return _grouped_mm(
                *to_float64(args), **{name: to_float64(x) for name, x in kwargs.items()}
            )
        try:
            return to_float64(_cast(to_float64, func, args, kwargs))
        except (RuntimeError, NotImplementedError) as error:
            try:
                result = _cast(_to_float32, func, args, kwargs)
            except Exception:
                raise error from None  # the operation fails in any dtype
            self.without_float64.add(func.name())
            return to_float64(result)


def to_float64(value: Any) -> Any:
    """Convert float tensors and dtypes, also in lists, to float64, and leave other values alone."""
    if isinstance(value, Tensor):
        return value.to(wide_dtype) if (wide_dtype := WIDE_DTYPES.get(value.dtype)) else value
    if isinstance(value, list | tuple):
        return type(value)(map(to_float64, value))
    return WIDE_DTYPES.get(value, value) if isinstance(value, torch.dtype) else value


def _to_float32(value: Any) -> Any:
    """Convert float64 tensors and dtypes, also in lists, to float32."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype == torch.float64 else value
    if isinstance(value, list | tuple):
        return type(value)(map(_to_float32, value))
    return torch.float32 if value is torch.float64 else value


@cache
def _is_view(func: Any) -> bool:
    """Return whether an operation returns part of a tensor in the same dtype."""
    return func.is_view and func is not _aten.view.dtype


def _cast(cast: Callable[[Any], Any], func: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """Call an operation with cast arguments, and copy what it changes back to the originals."""
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
    """Makes every tensor report the dtype float64, and casts the arguments of some functions.

    Convolutions, attention and recurrent layers compare the dtypes of their arguments before they
    dispatch an operation, so their arguments are cast first. Only this thread is affected.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _dtype_of:
            return WIDE_DTYPES.get(dtype := func(*args, **kwargs), dtype)
        if _compares(func) and not kwargs.get("inplace"):
            args, kwargs = (
                to_float64(tuple(args)),
                {name: to_float64(x) for name, x in kwargs.items()},
            )
        return func(*args, **kwargs)


@cache
def _compares(func: Any) -> bool:
    """Return whether a function may compare the dtypes of its arguments."""
    if isinstance(func, FunctionType):  # it may call any function
        return func.__module__.startswith("torch") and func not in _READING
    name = getattr(func, "__name__", "")
    return name.startswith(("conv", "lstm", "gru", "rnn_", "scaled_dot_product_attention"))


@cache
def _written(func: Any) -> list[tuple[int, str]]:
    """Return the position and the name of each argument that an operation writes to."""
    arguments = enumerate(func._schema.arguments)
    return [
        (n, argument.name)
        for n, argument in arguments
        if argument.alias_info and argument.alias_info.is_write
    ]


def _grouped_mm(x: Tensor, weight: Tensor, offs: Tensor, *_: Any, **__: Any) -> Tensor:
    """Return x[N,K] @ weight[G,K,M], where group g ends at row offs[g].

    torch's own operation does not support float64.
    """
    ends = [0, *offs.tolist()]
    parts = [x[a:b] @ w for a, b, w in zip(ends, ends[1:], weight, strict=False)]
    return torch.cat([*parts, x.new_zeros(len(x) - ends[-1], weight.shape[-1])])
