"""Decides which modules of a model are norms, as far as possible without running them.

`is_norm` decides. Only a trial shows what a module of an unknown class computes: `found_norms.py`
tries the modules that `may_be_norm` admits.
"""

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from normlab.any_model.tracing.functional_norms import NORM_OPERATIONS, Functional
from normlab.any_model.tracing.scripted import class_name, inside_script, is_scripted
from normlab.norms.base import Norm

CHANNELS_FIRST, CHANNELS_LAST = (nn.GroupNorm, _NormBase), (nn.LayerNorm, nn.RMSNorm)


def is_norm(module: nn.Module) -> bool:
    """Return whether a module is a known norm, or has a class name that says so.

    A module that contains a norm is not a norm, nor is a norm of weights (weight norm, spectral
    norm).
    """
    return [m for m in module.modules() if is_known_norm(m) or _is_called_norm(m)] == [module]


def is_known_norm(module: nn.Module) -> bool:
    """Return whether a module's class is a norm of torch or normlab, or keeps running statistics.

    What such a norm computes needs no trial, except for the axes that it pools over.
    """
    known = (*CHANNELS_LAST, *CHANNELS_FIRST, Norm, Functional)
    return isinstance(module, known) or keeps_running_statistics(module)


def may_be_norm(module: nn.Module) -> bool:
    """Return whether a module is a known norm or, outside torch, has no inner weights."""
    inner = len([*module.parameters()]) > len([*module.parameters(recurse=False)])
    of_torch = type(module).__module__.startswith("torch.") and not is_scripted(module)
    return is_known_norm(module) or not (of_torch or inner)


def norms_in_scripts(model: nn.Module) -> list[str]:
    """Return the paths of norms inside scripted modules, or of the modules that call them.

    Besides `is_norm`, the graph of the outermost scripted module shows norms by their operation; a
    norm written as a formula is not recognized.
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

    The names are torch's, or a standard deviation instead of the variance (batch renormalization),
    or only a mean square (power normalization).
    """
    names = {name for name, _ in module.named_buffers("", recurse=False)}
    moments = "running_mean" in names and not names.isdisjoint({"running_var", "running_std"})
    return moments or "running_square" in names


def running_statistics(norm: nn.Module) -> RunningStatistics | None:
    """Return the running statistics that a module keeps, in float64; None if it keeps none."""
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
    """Return the eps that a norm keeps as an attribute, such as `variance_epsilon`."""
    return next((v for k, v in vars(norm).items() if "eps" in k and isinstance(v, float)), None)


def _is_called_norm(module: nn.Module) -> bool:
    of_weights = type(module).__module__.startswith("torch.nn.utils")
    return "norm" in class_name(module).lower() and not of_weights
