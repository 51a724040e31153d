"""SeeDNorm, GatedNorm and DyISRU: their equations, and what they equal at initialization."""

import pytest
import torch

from normlab.config.registry import options
from normlab.models.layers import initialize
from normlab.norms.make import make_norm

DIM = 12
X = torch.randn(3, 5, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.double) * 2 + 1


def made(option, **values):
    return make_norm(option, DIM, **values).double()


def root(x):
    return (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def moved(norm, *names):
    """Redraw these parameters."""
    for number, name in enumerate(names):
        parameter = norm.get_parameter(name)
        drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
        parameter.data = drawn.double()
    return norm


def test_seednorm_begins_as_rms_norm_to_the_bit_and_with_no_gradient_of_alpha():
    norm = made("seednorm")
    y = norm(X)
    assert torch.equal(y, made("rms", eps=1e-6)(X))
    (y * y.detach().cos()).sum().backward()
    assert not norm.alpha.grad.any() and norm.beta.grad.any()


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 3])
def test_a_scalar_of_each_token_and_group_moves_the_gain_of_seednorm(groups):
    norm = moved(made("seednorm", groups=groups), "weight", "alpha", "beta")
    width = DIM // groups
    for cut in (slice(first, first + width) for first in range(0, DIM, width)):
        scalar = (X[..., cut] @ norm.beta[cut]).tanh()[..., None]
        gain = norm.weight[cut] + norm.alpha[cut] * scalar
        torch.testing.assert_close(norm(X)[..., cut], gain * X[..., cut] / root(X))
    assert (norm(2 * X) - norm(X)).abs().max() > 0.1  # unlike RMS norm's


@torch.no_grad()
def test_gatednorm_multiplies_rms_norm_by_a_gate_of_low_rank():
    norm = moved(made("gatednorm", rank=2), "weight", "down", "up")
    y = norm.weight * X / root(X)
    gate = torch.sigmoid(torch.nn.functional.silu(y @ norm.down.T) @ norm.up.T)
    torch.testing.assert_close(norm(X), gate * y)
    assert norm.down.numel() + norm.up.numel() == 2 * 2 * DIM
    norm.up.zero_()
    rms = made("rms", eps=1e-6)
    rms.weight.copy_(norm.weight)
    assert torch.equal(norm(X), rms(X) / 2)
    norm.factor = 2.0
    assert torch.equal(norm(X), rms(X))


def test_the_gates_of_a_model_are_drawn_by_seed_and_name_like_its_linear_layers():
    state, models = torch.get_rng_state(), []
    for seed in (1, 1, 2):
        models.append(torch.nn.ModuleList([made("gatednorm"), made("gatednorm")]))
        initialize(models[-1], seed)
    (first, second), (again, _), (other, _) = models
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(first.up, again.up)
    assert not torch.equal(first.up, second.up) and not torch.equal(first.up, other.up)
    assert first.down.abs().max() <= DIM**-0.5 and first.up.abs().max() <= 16**-0.5


@torch.no_grad()
def test_dyisru_is_rms_norm_where_b_is_the_sum_of_the_other_squares():
    norm, squares = made("dyisru"), X.square()
    assert norm.alpha.item() == pytest.approx(301**-0.5, rel=1e-3)
    norm.alpha.data = (squares.sum(-1, keepdim=True) - squares).rsqrt()
    torch.testing.assert_close(norm(X), made("rms", eps=0.0)(X), rtol=1e-12, atol=1e-12)


def test_what_is_second_hand_says_so_in_its_first_sentence():
    found = {o.name for g in ("norm", "placement") for o in options(g) if "second" in o.description}
    assert found == {"seednorm", "gatednorm", "dyisru", "taper", "keel"}
