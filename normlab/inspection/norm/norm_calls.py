"""Calls norms outside any model, with fixed random draws, and compares their outputs."""

import contextlib
import copy
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.norms.base import Norm
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import Tokens

_CHANGES = ((1.0, 0.7), (-40.0, 0.0), (0.0, 0.0))  # a x + b for each change of an input x
_ROUNDING = 1e-9  # far above the effect of summation order in float64


@contextlib.contextmanager
def fixed_seed() -> Iterator[None]:
    """Fix the random seed of the CPU inside the context, and restore the state afterwards."""
    former = torch.get_rng_state()
    torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(former)


def normal(*shape: int, seed: int) -> Tensor:
    """Return normal float64 values with a mean of 2 and a standard deviation of 3."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * 3 + 2


def call(norm: Norm, x: Tensor, valid: Tensor | None = None, *, start: int = 0) -> Tensor:
    """Return a norm's output, with the same random draws in each call.

    If `valid` is None, all tokens are real.
    """
    with fixed_seed():
        return norm(x, Tokens(all_real(x) if valid is None else valid, start=start))


def all_real(x: Float[Tensor, "B P D"]) -> Bool[Tensor, "B P"]:
    """Return a mask of all tokens of `x`."""
    return torch.ones(x.shape[:2], dtype=torch.bool)


def run(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return a norm's output, without a gradient. In training mode, statistics are updated."""
    with torch.no_grad():
        return call(norm, x.clone(), valid)


def run_copy(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the output of a copy of the norm, which leaves the norm itself unchanged."""
    return run(copy.deepcopy(norm), x, valid)


def trained_on(norm: Norm, *batches: Tensor) -> Norm:
    """Train a copy of a norm on these batches, and return it in eval mode."""
    other = copy.deepcopy(norm).train()
    for batch in batches:
        run(other, batch)
    return other.eval()


def one_by_one(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the outputs when positions are fed one at a time, as in decoding."""
    real = all_real(x) if valid is None else valid
    with torch.no_grad():
        steps = range(x.shape[1])
        return torch.cat([call(norm, x[:, [t]], real[:, [t]], start=t) for t in steps], 1)


def affected(norm: Norm, x: Tensor, place: tuple[int, ...], before: Tensor) -> Tensor:
    """Return a mask of the outputs that change if the input at `place` does, even by one bit.

    `before` is the output for the unchanged input.
    """
    changed = torch.zeros_like(before, dtype=torch.bool)
    for factor, summand in _CHANGES:
        other = x.clone()
        other[place] = other[place] * factor + summand
        changed |= run_copy(norm, other) != before
    return changed


def differ(before: Tensor, after: Tensor) -> bool:
    """Return whether two results differ by more than rounding, or are not finite."""
    limit = _ROUNDING * (1 + before.abs().max())
    return not bool((before - after).abs().max() <= limit)


def running_tables(norm: Norm) -> dict[str, Tensor]:
    """Return the norm's tables of running statistics, keyed by name. They are not copies."""
    return norm.tables if isinstance(norm, RunningNorm) else {}
