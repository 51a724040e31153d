"""Kernels match the formulas of their norms, and subclasses never use one."""

import copy

import pytest
import torch

from normlab.norms import fast
from normlab.norms.fast import FAST
from normlab.norms.make import make_norm
from normlab.norms.ramp import Clock
from normlab.norms.tokens import Tokens
from tests.norms.kernels import OPTIONS

VALID = torch.arange(6)[None] < torch.tensor([6, 2, 4, 5])[:, None]


def trained(norm, dtype=torch.float64):
    """Return the outputs, gradients and state of three steps, then the output in eval."""
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
def test_each_kernel_matches_its_norms_formula(option, monkeypatch):
    norm = make_norm(option, 8).double()
    norm.weight.data.copy_(torch.linspace(0.5, 2, 8))
    plain = copy.deepcopy(norm)
    quick = trained(norm)
    monkeypatch.delitem(FAST, OPTIONS[option])
    torch.testing.assert_close(quick, trained(plain), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_kernel_runs_in_each_dtype_of_its_norm_and_input(option, dtype):
    norm, x = make_norm(option, 8), torch.randn(4, 6, 8)
    norm(x)
    for mode in (True, False):
        expected = norm.train(mode)(x)
        for into in (dtype, torch.float32):
            y = copy.deepcopy(norm).to(dtype)(x.to(into))
            assert y.dtype == into
            torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=4e-2)


def test_layer_norms_kernel_agrees_for_a_single_feature(capsys):
    norm = make_norm("ln", 1)
    assert fast.agrees(norm) and not norm(torch.randn(4, 6, 1)).any()
    assert not capsys.readouterr().err


def test_only_batch_norm_layer_norm_and_rms_norm_have_kernels():
    assert set(FAST) == set(OPTIONS.values())


@pytest.mark.parametrize("option", OPTIONS)
def test_a_subclass_runs_its_own_formula_in_training_and_eval(option):
    kind = OPTIONS[option]
    own = type("Own", (kind,), {"formula": lambda self, x, *rest: 2 * kind.formula(self, x, *rest)})
    norm = make_norm(option, 8).double()
    double = copy.deepcopy(norm)
    double.__class__ = own
    x = torch.randn(4, 6, 8, dtype=torch.double)
    for _ in ("training", "eval"):
        torch.testing.assert_close(double(x), 2 * norm(x))
        norm.eval(), double.eval()


def test_noisy_batch_norm_rounds_to_bf16_only_once():
    norm = make_norm("bn_noisy", 8)
    norm.begin_step(Clock(3))
    x = torch.randn(4, 6, 8).bfloat16()
    wide = copy.deepcopy(norm)(x.float())
    assert torch.equal(norm(x), wide.bfloat16())


def test_group_norm_runs_layer_norms_kernel(monkeypatch):
    norm, x = make_norm("gn", 8, groups=2), torch.randn(4, 6, 8)
    expected = torch.nn.functional.group_norm(x.flatten(0, 1), 2).view_as(x)
    torch.testing.assert_close(norm(x), expected)
    monkeypatch.setattr(fast, "agrees", lambda norm: True)
    monkeypatch.setattr(OPTIONS["ln"], "formula", None)
    torch.testing.assert_close(norm(x), expected)
