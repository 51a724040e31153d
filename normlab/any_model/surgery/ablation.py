"""Skips a module of a model, or rounds its values, to measure the effect on the output."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


def skip(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], y: Any) -> Any:
    """Return a module's first argument in place of its output.

    If the output is a tuple, the argument takes the place of its first entry. This is a forward
    hook, registered with `with_kwargs=True`.
    """
    x = args[0] if args else next(iter(kwargs.values()))
    return (x, *y[1:]) if isinstance(y, tuple) else x


def quantized(x: Float[Tensor, "*any"], largest: Tensor, bits: int) -> Float[Tensor, "*any"]:
    """Return `x` rounded to 2^bits - 1 equally spaced values from -largest to largest."""
    most = 2 ** (bits - 1) - 1
    step = (largest / most).clamp(min=torch.finfo(x.dtype).tiny)
    return (x / step).round().clamp(-most, most) * step
