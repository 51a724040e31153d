"""Kernels: each equals its norm's formula, serves its own class alone, and never waits for more."""

import copy

import pytest
import torch

from normlab.norms.batch import BatchNorm
from normlab.norms.fast import FAST
from normlab.norms.make import make_norm
from normlab.norms.ramp import Clock
from normlab.norms.tokens import Tokens

VALID = torch.arange(6)[None] < torch.tensor([6, 2, 4, 5])[:, None]
OPTIONS = {"bn": BatchNorm, "ln": type(make_norm("ln", 8)), "rms": type(make_norm("rms", 8))}


def trained(norm, dtype=torch.float64):
    """Return outputs, gradients and state of three steps, then the output in eval."""
    found = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(4, 6, 8, generator=generator).to(dtype) * 3 + 2
        y = norm(x.requires_grad_(), Tokens(VALID))
        (y * y.detach().cos())[VALID].sum().backward()
        found += [y[VALID], x.grad[VALID]]
    learned = [parameter.grad for parameter in norm.parameters()]
    return [*found, *learned, *norm.state_dict().values(), norm.eval()(x, Tokens(VALID))[VALID]]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_kernel_equals_the_formula_of_its_norm(option, monkeypatch):
    norm = make_norm(option, 8).double()
    norm.weight.data.copy_(torch.linspace(0.5, 2, 8))
    plain = copy.deepcopy(norm)
    quick = trained(norm)
    monkeypatch.delitem(FAST, OPTIONS[option])
    torch.testing.assert_close(quick, trained(plain), rtol=1e-11, atol=1e-12)


def test_no_other_class_has_a_kernel():
    assert set(FAST) == set(OPTIONS.values())


@pytest.mark.parametrize("option", OPTIONS)
def test_a_subclass_is_computed_by_its_own_formula_in_training_and_eval(option):
    kind = OPTIONS[option]
    own = type("Own", (kind,), {"formula": lambda self, x, *rest: 2 * kind.formula(self, x, *rest)})
    norm = make_norm(option, 8).double()
    double = copy.deepcopy(norm)
    double.__class__ = own
    x = torch.randn(4, 6, 8, dtype=torch.double)
    for _ in ("training", "eval"):
        torch.testing.assert_close(double(x), 2 * norm(x))
        norm.eval(), double.eval()


def test_the_noise_of_a_noisy_batch_norm_is_rounded_once_in_bf16():
    norm = make_norm("bn_noisy", 8)
    norm.begin_step(Clock(3))
    x = torch.randn(4, 6, 8).bfloat16()
    wide = copy.deepcopy(norm)(x.float())
    assert torch.equal(norm(x), wide.bfloat16())
