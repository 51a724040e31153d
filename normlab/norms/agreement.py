"""Checks that a kernel computes its norm's formula, by running both and comparing their values.

If you change the formula, or another method that the norm computes with, the kernel no longer
agrees with it and the norm runs the formula instead. An edit that does not change the compared
values goes unnoticed.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from normlab.distributed.process_group import is_main
from normlab.norms.moments import unchanged
from normlab.norms.ramp import Clock
from normlab.norms.tokens import Tokens

if TYPE_CHECKING:
    from normlab.norms.base import Norm

METHODS = (
    *("formula", "training_formula", "prepare", "output", "gain_and_shift"),
    *("moments", "estimates", "update", "enter"),
)
"""The methods a norm computes with. If one is replaced at run time, its kernel is checked again."""

# total steps of the test run, whose first and last step check early and late phases
_LAST = 1_000_000
_TOLERANCE = 1e-9  # relative to the largest value, in float64
_AGREEMENTS: dict[tuple[Any, ...], bool] = {}
_NAMED: set[tuple[Any, ...]] = set()  # kernels whose disagreement has been reported


def agrees(norm: "Norm") -> bool:
    """Return whether the kernel of the norm's class agrees with its formula, with these settings.

    The first call in a process compares the outputs, gradients and statistics of two training
    steps, and the output in evaluation, which takes a few milliseconds. If they differ, a one-line
    warning is printed.
    """
    kind = type(norm)
    methods, settings = _getters(kind)
    if not vars(norm).keys().isdisjoint(METHODS):
        return False  # this norm object overrides a method
    key = kind, methods(kind), settings(norm)
    try:
        return _AGREEMENTS[key]
    except TypeError:  # a setting is not hashable
        return False
    except KeyError:
        _AGREEMENTS[key] = True  # during the comparison, so that one side uses the kernel
    # A new thread has none of the caller's modes: autocast, no_grad, devices, tracing, hooks.
    with ThreadPoolExecutor(1) as thread:
        values = {name: getattr(norm, name) for name in _settings(kind)}
        _AGREEMENTS[key] = thread.submit(_same, kind, values).result()
    disagree = key[:2]  # for any settings
    if not _AGREEMENTS[key] and disagree not in _NAMED and is_main():
        _NAMED.add(disagree)
        line = f"the kernel of {kind.__name__} disagrees with its formula: the formula runs"
        print(line, file=sys.stderr)
    return _AGREEMENTS[key]


@lru_cache
def _getters(kind: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return a function that reads the methods of a class, and one for its norms' settings."""
    methods = [name for name in METHODS if hasattr(kind, name)]
    return attrgetter(*methods), attrgetter(*_settings(kind))


def _settings(kind: Any) -> list[str]:
    """Return the names of the settings that a norm of this class is built from."""
    return [field.name for field in fields(kind) if field.init]


def _same(kind: type, settings: dict[str, Any]) -> bool:
    """Return whether a norm gives the same results as a norm of a subclass, which has no kernel."""
    try:
        with torch.random.fork_rng(devices=[]):
            kinds = kind, type(kind.__name__, (kind,), {})
            quick, plain = (_values(each(**settings).double()) for each in kinds)
    except Exception:  # an error in the formula is raised where the norm is used
        return False
    return all(map(_close, quick, plain))


def _close(quick: Tensor, plain: Tensor) -> bool:
    if quick.shape != plain.shape or quick.numel() == 0:
        return quick.shape == plain.shape
    return bool((quick - plain).abs().max() <= _TOLERANCE * plain.abs().max())


def _values(norm: "Norm") -> list[Tensor]:
    """Return the outputs, gradients and statistics of two steps, then the output in evaluation.

    The values of tokens and features differ by powers of ten, so that `eps` matters for some. One
    value is by far the largest of its token and of its feature, as large as a norm can make it.
    """
    if (pool := getattr(norm, "pool", None)) is not None:
        pool.summed = unchanged  # sums over this process only
    if isinstance(norm.weight, nn.Parameter):
        nn.init.uniform_(norm.weight, 0.5, 2, generator=torch.Generator().manual_seed(0))
    shape = 4, max(4, min(32, 8192 // norm.dim)), norm.dim
    valid = torch.arange(shape[1]) < torch.tensor([[shape[1]], [shape[1]], [2], [3]])
    tokens, values = Tokens.collated(valid), []
    wave = torch.arange(valid.numel() * norm.dim, dtype=torch.float64).mul(1.7).sin().view(shape)
    sizes = torch.linspace(-4, 1, valid.numel()).view(*valid.shape, 1)
    x = wave * 10.0 ** (sizes + torch.linspace(-1, 1, norm.dim)) + 1
    x[0, 0, 0] = 100
    for step in (1, _LAST):
        norm.begin_step(Clock(step, _LAST))
        x = (x * 1.5 + wave).detach().requires_grad_()
        y = norm(x, tokens)
        (y * wave.cos())[valid].sum().backward()
        assert x.grad is not None
        values += [y[valid].detach(), x.grad[valid]]
    values += [p.grad for p in norm.parameters() if p.grad is not None]
    values += [table.double() for table in norm.state_dict().values()]
    with torch.no_grad():
        return [*values, norm.eval()(x, tokens)[valid]]
