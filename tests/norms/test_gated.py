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


def redrawn(norm, *names):
    """Redraw these parameters."""
    for number, name in enumerate(names):
        parameter = norm.get_parameter(name)
        drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
        parameter.data = drawn.double()
    return norm


def test_seednorm_starts_bitwise_equal_to_rms_norm_with_zero_gradient_in_alpha():
    norm = made("seednorm")
    y = norm(X)
    assert torch.equal(y, made("rms", eps=1e-6)(X))
    (y * y.detach().cos()).sum().backward()
    assert not norm.alpha.grad.any() and norm.beta.grad.any()


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 3])
def test_seednorms_gain_depends_on_one_scalar_per_token_and_group(groups):
    norm = redrawn(made("seednorm", groups=groups), "weight", "alpha", "beta")
    width = DIM // groups
    for cut in (slice(first, first + width) for first in range(0, DIM, width)):
        scalar = (X[..., cut] @ norm.beta[cut]).tanh()[..., None]
        gain = norm.weight[cut] + norm.alpha[cut] * scalar
        torch.testing.assert_close(norm(X)[..., cut], gain * X[..., cut] / root(X))
    assert (norm(2 * X) - norm(X)).abs().max() > 0.1  # RMS norm would not change


@torch.no_grad()
def test_gatednorm_multiplies_rms_norm_by_a_low_rank_gate():
    norm = redrawn(made("gatednorm", rank=2), "weight", "down", "up")
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


def test_initial_gate_weights_depend_only_on_the_seed_and_the_parameters_name():
    state, models = torch.get_rng_state(), []
    for seed in (1, 1, 2):
        models.append(torch.nn.ModuleList([made("gatednorm"), made("gatednorm")]))
        initialize(models[-1], seed)
    (first, second), (again, _), (other, _) = models
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(first.up, again.up)
    assert not torch.equal(first.up, second.up) and not torch.equal(first.up, other.up)
    assert first.down.abs().max() <= DIM**-0.5 and first.up.abs().max() <= 16**-0.5


@torch.no_grad()
def test_dyisru_equals_rms_norm_if_b_is_the_sum_of_the_other_features_squares():
    norm, squares = made("dyisru"), X.square()
    assert norm.alpha.item() == pytest.approx(301**-0.5, rel=1e-3)
    norm.alpha.data = (squares.sum(-1, keepdim=True) - squares).rsqrt()
    torch.testing.assert_close(norm(X), made("rms", eps=0.0)(X), rtol=1e-12, atol=1e-12)


def test_options_known_only_from_a_second_hand_source_say_so_in_their_description():
    found = {o.name for g in ("norm", "placement") for o in options(g) if "second" in o.description}
    assert found == {"seednorm", "gatednorm", "dyisru", "taper", "keel"}
