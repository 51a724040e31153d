"""The rate, the scale and the randomness of dropout."""

import math

import pytest
import torch

from normlab.dropout import Dropout

N = 400_003  # not a multiple of 4: one random word serves four units


def dropped(p, seed=0, n=N):
    torch.manual_seed(seed)
    return Dropout(p).train()(torch.ones(n)) == 0


@pytest.mark.parametrize("p", [0.0001, 0.3])
def test_units_are_dropped_independently_at_the_given_rate(p):
    units = dropped(p).double()
    error = 5 * math.sqrt(p * (1 - p) / N) + 2**-16
    assert units.mean().item() == pytest.approx(p, abs=error)
    for lag in (1, 2, 3, 4, 16):
        both = (units[lag:] * units[:-lag]).mean().item()
        assert both == pytest.approx(p * p, abs=5 * p / math.sqrt(N) + 2**-15)


@pytest.mark.parametrize("p", [0.25, 0.3])
def test_kept_units_are_scaled_to_keep_the_expectation(p):
    torch.manual_seed(0)
    out = Dropout(p).train()(torch.full((N,), 2.0))
    (kept,) = out[out != 0].unique()
    # the rate is rounded to 1/65536, and the scale uses the rounded rate, so there is no bias
    rounded = round(p * 65536) / 65536
    assert kept.item() == pytest.approx(2 / (1 - rounded), rel=1e-7)


def test_the_seed_decides_which_units_are_dropped_and_every_call_redraws_them():
    assert torch.equal(dropped(0.3, seed=5), dropped(0.3, seed=5))
    assert not torch.equal(dropped(0.3, seed=5), dropped(0.3, seed=6))
    layer = Dropout(0.3).train()
    assert not torch.equal(layer(torch.ones(999)), layer(torch.ones(999)))


def test_evaluation_and_rate_zero_leave_values_and_the_generator_unchanged():
    x = torch.randn(5, 7)
    state = torch.get_rng_state()
    assert torch.equal(Dropout(0.3).eval()(x), x)
    assert torch.equal(Dropout(0.0).train()(x), x)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_gradient_passes_only_through_kept_units_and_the_dtype_is_kept(dtype):
    x = torch.randn(4, 16, 9, dtype=dtype, requires_grad=True)
    out = Dropout(0.4).train()(x)
    assert out.shape == x.shape and out.dtype == dtype
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.allclose(gradient * x.detach(), out.detach()) and (gradient == 0).any()
