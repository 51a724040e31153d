"""Decides which modules of any model are norms.

A module is a norm if one of these is true:

    known    its class is a norm of torch or normlab, or it has buffers with torch's or normlab's
             names for running statistics (`is_known_norm`)
    named    its class name contains `norm`, as in `LlamaRMSNorm`, and no module inside it is a norm
             (`is_norm` is true for known and named norms)
    tried    it is called in a forward pass, doubling its input barely changes its output, and one
             input value affects several outputs (`found_norms.py`)

Swapping and folding use `is_norm`, which needs no input. The questions use trials, which also find
norms with any other name: each module for which `may_be_norm` is true is tried.
"""

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from normlab.any_model.tracing.class_names import is_named_norm
from normlab.any_model.tracing.functional_norms import NORM_OPERATIONS, Functional
from normlab.any_model.tracing.scripted import inside_script, is_scripted
from normlab.norms.base import Norm

CHANNELS_FIRST, CHANNELS_LAST = (nn.GroupNorm, _NormBase), (nn.LayerNorm, nn.RMSNorm)


def is_norm(module: nn.Module) -> bool:
    """Return whether a module is a known norm, or has `norm` in its class name.

    A module that contains a norm is not a norm itself. Weight norm and spectral norm are not norms.
    """
    return [m for m in module.modules() if is_known_norm(m) or is_named_norm(m)] == [module]


def is_known_norm(module: nn.Module) -> bool:
    """Return whether a module is of a norm class of torch or normlab, or keeps running statistics.

    A trial only shows which axes such a norm pools over, not whether it is a norm.
    """
    known = (*CHANNELS_LAST, *CHANNELS_FIRST, Norm, Functional)
    return isinstance(module, known) or keeps_running_statistics(module)


def may_be_norm(module: nn.Module) -> bool:
    """Return whether a module is a known norm or should be tried.

    Not tried are modules of torch's classes, and modules that contain modules with weights.
    """
    inner = len([*module.parameters()]) > len([*module.parameters(recurse=False)])
    of_torch = type(module).__module__.startswith("torch.") and not is_scripted(module)
    return is_known_norm(module) or not (of_torch or inner)


def norms_in_scripts(model: nn.Module) -> list[str]:
    """Return the paths of norms inside scripted modules, or of the modules that call them.

    Norms are recognized by `is_norm`, or by an operation such as `aten::layer_norm` in the graph of
    the outermost scripted module. A norm written as a formula is not recognized.
    """
    inner = inside_script(model)
    paths = [name for name, module in inner.items() if is_norm(module)]
    for name, module in model.named_modules():
        if not is_scripted(module) or name in inner or is_norm(module):
            continue
        if any(path.startswith(f"{name}." if name else "") for path in paths):
            continue
        graph: Any = getattr(module, "inlined_graph", "")
        if any(f"aten::{norm}(" in str(graph) for norm in NORM_OPERATIONS):
            paths.append(name)
    return paths


class RunningStatistics(NamedTuple):
    """A norm's running mean and variance per channel, or its mean square if `mean` is None."""

    mean: Tensor | None
    var: Tensor


def keeps_running_statistics(module: nn.Module) -> bool:
    """Return whether a module keeps running statistics, by the names of its buffers.

    The buffers are a mean with a variance (as in torch) or with a standard deviation (batch
    renormalization), or only a mean square (power normalization).
    """
    names = {name for name, _ in module.named_buffers("", recurse=False)}
    moments = "running_mean" in names and not names.isdisjoint({"running_var", "running_std"})
    return moments or "running_square" in names


def running_statistics(norm: nn.Module) -> RunningStatistics | None:
    """Return the running statistics that a module keeps, in float64, or None if it keeps none."""
    if not keeps_running_statistics(norm):
        return None
    buffers = {name: x.double().flatten() for name, x in norm.named_buffers("", recurse=False)}
    if "running_mean" not in buffers:
        return RunningStatistics(None, buffers["running_square"])
    var = buffers.get("running_var")
    return RunningStatistics(
        buffers["running_mean"], buffers["running_std"].square() if var is None else var
    )


def eps_of(norm: nn.Module) -> float | None:
    """Return a norm's attribute that is its eps, such as `variance_epsilon`, or None."""
    return next((v for k, v in vars(norm).items() if "eps" in k and isinstance(v, float)), None)
