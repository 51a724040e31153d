"""Faults of the kinds that pytest-torch checks for, each with a correct version.

These are the faults that its documentation promises to catch, in state, layouts, checkpoints,
gradients and compilation. normlab asks about few of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest_torch
import torch
from pytest_torch.invariance import assert_layout_invariant
from torch import Tensor, nn

WIDTH = 8


class Own(NamedTuple):
    """A forward function with a correct and a faulty version, and pytest-torch's check for it."""

    forward: Callable[["Model", Tensor], Tensor]
    check: Callable[[Callable[[], nn.Module], Mapping[str, Tensor]], Any]


class Model(nn.Module):
    """A model with a layer, a buffer, and the correct or faulty version of a forward function."""

    def __init__(self, own: Own, faulty: bool):
        super().__init__()
        self.linear, self.own = nn.Linear(WIDTH, WIDTH), own
        if own is OWN["a branch without a gradient"]:
            self.branch = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("calls", torch.zeros(1))
        offset = torch.randn(WIDTH)
        if own is OWN["a tensor that is no buffer"] and faulty:
            self.offset = offset
        else:
            self.register_buffer("offset", offset)
        self.faulty = faulty

    def forward(self, x: Tensor) -> Tensor:
        return self.own.forward(self, x)


def _loss(y: Tensor) -> Tensor:
    return y.square().mean()


def _contract(make: Callable[[], nn.Module], batch: Mapping[str, Tensor]) -> None:
    pytest_torch.check_inference_contract(make(), dict(batch))


def _checkpoint(make: Callable[[], nn.Module], batch: Mapping[str, Tensor]) -> None:
    pytest_torch.assert_checkpoint_roundtrip(make, dict(batch))


def _layout(make: Callable[[], nn.Module], batch: Mapping[str, Tensor]) -> None:
    assert_layout_invariant(make(), dict(batch))


def _finite_gradients(make: Callable[[], nn.Module], batch: Mapping[str, Tensor]) -> None:
    pytest_torch.assert_gradients_finite(make(), dict(batch), _loss)


def _all_gradients(make: Callable[[], nn.Module], batch: Mapping[str, Tensor]) -> None:
    pytest_torch.assert_all_params_receive_grad(make(), dict(batch), _loss)


def _compiled(make: Callable[[], nn.Module], batch: Mapping[str, Tensor]) -> None:
    pytest_torch.assert_compile_parity(make(), dict(batch), backend="eager")


def _bfloat16(make: Callable[[], nn.Module], batch: Mapping[str, Tensor]) -> None:
    pytest_torch.check_inference_contract(make(), dict(batch), dtypes=(torch.bfloat16,))


def _permuted(make: Callable[[], nn.Module], batch: Mapping[str, Tensor]) -> None:
    pytest_torch.assert_permutation_equivariant(make(), dict(batch), dim=1)


def _counted(m: Model, x: Tensor) -> Tensor:
    if m.faulty:
        m.calls += 1
    return m.linear(x)


def _strided(m: Model, x: Tensor) -> Tensor:
    size = (x.shape[1] * WIDTH, WIDTH, 1)
    return m.linear(torch.as_strided(x, x.shape, size) if m.faulty else x)


def _detached(m: Model, x: Tensor) -> Tensor:
    y = m.branch(x)
    return m.linear(x) + (y.detach() if m.faulty else y)


def _norm_at_zero(m: Model, x: Tensor) -> Tensor:
    y = m.linear(x - x)
    y = (y - m.linear.bias).square().sum(-1, keepdim=True)
    return m.linear(x) + (y if m.faulty else y + 1e-6).sqrt()


def _with_compilation(m: Model, x: Tensor) -> Tensor:
    return m.linear(x) * (2 if m.faulty and torch.compiler.is_compiling() else 1)


def _cancellation(m: Model, x: Tensor) -> Tensor:
    y = m.linear(x)
    return (y + 1000) - 1000 if m.faulty else y


def _ordered(m: Model, x: Tensor) -> Tensor:
    return m.linear(x) + (torch.arange(x.shape[1])[:, None].to(x.dtype) if m.faulty else 1)


OWN = {
    "noise in evaluation": Own(
        lambda m, x: m.linear(x) + (torch.rand(1) if m.faulty else 0.5), _contract
    ),
    "infinite values": Own(
        lambda m, x: m.linear(x) + (0 * x[..., :1] + (0 if m.faulty else 1)).log(), _contract
    ),
    "a mean over rows": Own(lambda m, x: m.linear(x - (x.mean(0) if m.faulty else 0)), _contract),
    "a buffer that counts calls": Own(_counted, _contract),
    "a sum that loses digits in bfloat16": Own(_cancellation, _bfloat16),
    "a tensor that is no buffer": Own(lambda m, x: m.linear(x) + m.offset, _checkpoint),
    "strides of a contiguous input": Own(_strided, _layout),
    "a branch without a gradient": Own(_detached, _all_gradients),
    "a gradient of NaN": Own(_norm_at_zero, _finite_gradients),
    "another result when compiled": Own(_with_compilation, _compiled),
    "order in a set": Own(_ordered, _permuted),
}


def own_case(name: str, faulty: bool) -> tuple[Callable[[], nn.Module], dict[str, Tensor]]:
    """Return a function that builds a model, and its batch; its first model is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = Model(OWN[name], faulty).eval()
        batch = {"x": torch.randn(4, 6, WIDTH)}
    built = iter([first])

    def make() -> nn.Module:
        return next(built, None) or Model(OWN[name], faulty).eval()

    return make, batch
