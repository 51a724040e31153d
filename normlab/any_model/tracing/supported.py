"""Refuses models that cannot be run or examined, before anything in them is changed."""

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from normlab.any_model.tracing.float64 import WIDE_DTYPES
from normlab.errors import UserError


def plain_model(model: nn.Module) -> nn.Module:
    """Return the model inside `torch.compile`, DataParallel and DistributedDataParallel.

    Raises UserError if the model is scripted or sharded, or has parameters without values.
    """
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod  # pyright: ignore
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            break
    if isinstance(model, torch.jit.ScriptModule):
        raise UserError("a scripted model does not support hooks; pass the original nn.Module")
    for name, values in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(values):
            raise UserError(f"{name} has no values yet; run the model on one batch first")
        if values.is_meta:
            raise UserError(f"{name} is on the meta device; load its values first")
        if type(values).__name__ == "DTensor" or "fsdp" in type(model).__module__:
            raise UserError(f"{name} is sharded; pass the model on one device")
    return model


def check_unquantized(model: nn.Module) -> None:
    """Raise UserError if a model is quantized, or has parameters that float64 cannot replace."""
    for name, weight in model.named_parameters():
        if weight.dtype not in (*WIDE_DTYPES, torch.float64, torch.complex128):
            raise UserError(f"{name} is {weight.dtype}; pass the unquantized model")
    for name, module in model.named_modules():
        if ".quantized" in type(module).__module__:
            raise UserError(f"{name} is quantized; pass the unquantized model")


def replaced_forward(model: nn.Module) -> str | None:
    """Return the path of a module whose `forward` was replaced by a function, or None.

    In a copy of the model, such a function, as `torch.compile(model.forward)` returns, still runs
    the original. A method that is bound to the module is copied with it.
    """
    for path, module in model.named_modules():
        forward = vars(module).get("forward")
        if forward is not None and getattr(forward, "__self__", None) is not module:
            return path or "the model"
    return None
