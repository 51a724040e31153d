"""Learning rates, compared with their formulas and torch's own schedules."""

import math

import pytest
import torch

from normlab.training.schedule import Constant, Cosine, InverseSqrt, Rising


def test_inverse_sqrt_matches_the_formula_of_the_transformer_paper():
    dim, warmup = 512, 4000
    schedule = InverseSqrt(lr=(dim * warmup) ** -0.5, warmup=warmup)
    for step in (1, 100, 3999, 4000, 4001, 123456):
        assert schedule(step) == pytest.approx(dim**-0.5 * min(step**-0.5, step * warmup**-1.5))


def test_an_initial_rate_changes_only_the_warm_up_and_a_minimum_bounds_the_rate():
    plain = InverseSqrt(lr=1e-3, warmup=10)
    schedule = InverseSqrt(lr=1e-3, warmup=10, initial=1e-4, minimum=2e-4)
    assert schedule(5) == pytest.approx((1e-4 + 1e-3) / 2)
    assert schedule(10) == plain(10) == 1e-3 and schedule(40) == plain(40) == 5e-4
    assert schedule(1) == schedule(10**6) == 2e-4


def test_without_warmup_the_first_update_has_the_peak():
    assert InverseSqrt(lr=0.1, warmup=0)(1) == Constant(lr=0.1, warmup=0)(1) == 0.1
    assert Cosine(lr=0.1, warmup=0, total=10, final=0.0)(10) == pytest.approx(0.0, abs=1e-12)


def test_cosine_follows_torch_after_the_warmup():
    warmup, total, lr, final = 5, 30, 0.2, 0.1
    schedule = Cosine(lr=lr, warmup=warmup, total=total, final=final)
    assert [schedule(step) for step in range(1, 6)] == pytest.approx([0.04, 0.08, 0.12, 0.16, 0.2])
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=lr)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=total - warmup, eta_min=final * lr
    )
    for step in range(warmup, total + 1):
        assert schedule(step) == pytest.approx(reference.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        reference.step()
    assert schedule(total + 100) == pytest.approx(final * lr)


def test_the_rising_schedule_doubles_the_rate_and_the_constant_one_keeps_it():
    rates = [Rising(lr=1e-3, doubling=4)(step) for step in (1, 3, 5, 9)]
    assert rates == pytest.approx([1e-3, math.sqrt(2) / 1e3, 2e-3, 4e-3])
    rates = [Constant(lr=0.3, warmup=3)(step) for step in (1, 2, 3, 4, 1000)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.3, 0.3])
