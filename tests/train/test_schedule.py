import math

import pytest
import torch

from normlab.train.schedule import Constant, Cosine, InverseSqrt, Rising


def test_inverse_sqrt_rises_linearly_then_falls_with_the_root_of_the_step():
    schedule = InverseSqrt(lr=5e-4, warmup=4000)
    for step in (1, 10, 3999, 4000):
        assert schedule(step) == pytest.approx(5e-4 * step / 4000)
    for step in (4001, 16000, 60000):  # at 16,000 = 4 x 4,000 it is half of the peak
        assert schedule(step) == pytest.approx(5e-4 * math.sqrt(4000) / math.sqrt(step))
    assert schedule(16000) == pytest.approx(2.5e-4)


def test_inverse_sqrt_is_the_formula_of_the_transformer_paper():
    dim, warmup = 512, 4000
    schedule = InverseSqrt(lr=(dim * warmup) ** -0.5, warmup=warmup)
    for step in (1, 100, 4000, 123456):
        assert schedule(step) == pytest.approx(dim**-0.5 * min(step**-0.5, step * warmup**-1.5))


def test_a_rise_from_an_initial_rate_ends_at_the_same_peak_and_the_least_rate_holds():
    plain = InverseSqrt(lr=1e-3, warmup=10)
    schedule = InverseSqrt(lr=1e-3, warmup=10, initial=1e-4, minimum=2e-4)
    assert schedule(5) == pytest.approx((1e-4 + 1e-3) / 2)
    assert schedule(10) == plain(10) == 1e-3 and schedule(40) == plain(40) == 5e-4
    assert schedule(1) == schedule(10**6) == 2e-4
    for key in ("initial", "minimum"):
        with pytest.raises(ValueError, match=rf"schedule\.{key}=-1"):
            InverseSqrt(lr=0.1, warmup=1, **{key: -1.0})


def test_without_warmup_the_first_update_has_the_peak():
    assert InverseSqrt(lr=0.1, warmup=0)(1) == 0.1
    assert Constant(lr=0.1, warmup=0)(1) == 0.1
    assert Cosine(lr=0.1, warmup=0, total=10, final=0.0)(10) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_cosine_follows_torch_after_the_warmup(final: float):
    warmup, total, lr = 5, 30, 0.2
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


def test_rising_doubles_again_and_again():
    schedule = Rising(lr=1e-3, doubling=4)
    assert [schedule(step) for step in (1, 3, 5, 9)] == pytest.approx(
        [1e-3, 2**0.5 / 1e3, 2e-3, 4e-3]
    )


def test_constant_stays_after_the_warmup():
    schedule = Constant(lr=0.3, warmup=3)
    assert [schedule(step) for step in (1, 2, 3, 4, 1000)] == pytest.approx(
        [0.1, 0.2, 0.3, 0.3, 0.3]
    )


@pytest.mark.parametrize("kind", [InverseSqrt, Constant])
@pytest.mark.parametrize(
    ("values", "key"),
    [({"lr": 0.0, "warmup": 1}, "optim.lr"), ({"lr": 0.1, "warmup": -1}, "schedule.warmup")],
)
def test_wrong_values_are_named(kind, values: dict, key: str):
    with pytest.raises(ValueError, match=key):
        kind(**values)


def test_a_cosine_that_ends_before_it_begins_is_refused():
    with pytest.raises(ValueError, match=r"schedule\.total=10 .* schedule\.warmup=10"):
        Cosine(lr=0.1, warmup=10, total=10, final=0.0)
