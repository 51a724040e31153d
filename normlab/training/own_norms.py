"""Tries out the user's own norms, so that an error in one is not blamed on the model around it."""

import copy
import shlex
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from normlab.config.folders import include_words
from normlab.config.instantiation import class_of
from normlab.config.registry import OPTION
from normlab.config.schema import NORM_KEYS
from normlab.errors import UserError
from normlab.norms.base import Norm


def check_own_norms(config: Mapping[str, Any], model: nn.Module) -> None:
    """Call a copy of each of the user's own norms once, with a small batch.

    Raises UserError, with the norm's name, if its output does not have the shape and the dtype of
    its input. The model must be on the device on which it will run. The state of random number
    generators does not change.
    """
    by_class = {type(m): m for m in model.modules() if isinstance(m, Norm) and _is_own(m)}
    if not by_class:
        return
    rules: Mapping[str, Any] = config.get("sites") or {}
    nodes = {key: config[key] for key in NORM_KEYS if config.get(key)}
    nodes |= {f"sites.{pattern}": node for pattern, node in rules.items()}
    options = {class_of(node, key, Norm): node.get(OPTION) for key, node in nodes.items()}
    for kind, norm in by_class.items():
        if problem := _problem(norm):
            name = options.get(kind) or kind.__name__
            check = shlex.join(["normlab", "norm", "check", name, *include_words()])
            raise UserError(f"norm={name}: {kind.__name__}'s forward {problem}; run {check}")


def _is_own(norm: Norm) -> bool:
    return not type(norm).__module__.startswith("normlab.")


def _problem(norm: Norm) -> str:
    """Return what is wrong with a norm's output, or "" if nothing is."""
    positions = 1 if norm.by_position else min(3, norm.most_positions or 3)
    x = torch.randn(2, positions, norm.dim, generator=torch.Generator().manual_seed(0))
    x = x.to(norm.weight)
    devices = [x.device] if x.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices):
        y = copy.deepcopy(norm)(x.clone())
    if not isinstance(y, torch.Tensor):
        return f"returns {y!r:.40}, not a tensor"
    if (y.shape, y.dtype) == (x.shape, x.dtype):
        return ""
    return f"returns {y.dtype} {[*y.shape]} for an input that is {x.dtype} {[*x.shape]}"
