"""The number of a norm's gains is that of its parameter's entries, whatever they scale."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normlab
from normlab.any_model.tracing.gains import Gains

ROWS, TOKENS, HEADS, WIDTH = 3, 6, 2, 8


class ByHand(nn.Module):
    """A norm with some parameters, computed by a function of the module and its input."""

    def __init__(self, run, **parameters):
        super().__init__()
        self.run = run
        for name, value in parameters.items():
            setattr(self, name, nn.Parameter(value))

    def forward(self, x):
        return self.run(self, x)


def gains_of(norm, *shape):
    """Return the gains that an inspection counts in a norm, after its first one is set to 0."""
    torch.manual_seed(0)
    for name, weight in norm.named_parameters():
        if name == "weight" and weight.numel() > 1:
            weight.data.view(-1)[0] = 0
    (found,) = normlab.inspect(nn.Sequential(norm), torch.randn(*shape), checks="norms").norms
    return found.gains


def normalized(x):
    return F.rms_norm(x, x.shape[-1:])


@pytest.mark.parametrize(
    ("norm", "shape", "gains"),
    [
        (nn.LayerNorm(WIDTH), (ROWS, TOKENS, WIDTH), (WIDTH, 1)),
        (nn.LayerNorm([TOKENS, WIDTH]), (ROWS, TOKENS, WIDTH), (TOKENS * WIDTH, 1)),
        (nn.LayerNorm([3, 4, WIDTH]), (ROWS, 3, 4, WIDTH), (12 * WIDTH, 1)),
        (nn.RMSNorm(WIDTH), (ROWS, TOKENS, HEADS, WIDTH), (WIDTH, 1)),
        (nn.GroupNorm(2, WIDTH), (ROWS, WIDTH, TOKENS), (WIDTH, 1)),
        (nn.BatchNorm1d(WIDTH), (ROWS, WIDTH, TOKENS), (WIDTH, 1)),
    ],
)
def test_each_entry_of_torchs_gains_counts_once(norm, shape, gains):
    assert gains_of(norm, *shape) == Gains(*gains)


@pytest.mark.parametrize(
    ("norm", "gains"),
    [
        (ByHand(lambda m, x: m.g * normalized(x), g=torch.tensor(2.0)), (1, 0)),
        (ByHand(lambda m, x: m.bias + normalized(x), bias=torch.randn(WIDTH)), None),
        (
            ByHand(lambda m, x: m.g * (m.weight + 1) * normalized(x), weight=torch.ones(WIDTH)),
            (WIDTH, 0),
        ),
        (ByHand(lambda m, x: m.weight.exp() * normalized(x), weight=torch.zeros(WIDTH)), (8, 0)),
    ],
    ids=["one for all features", "bias only", "two factors", "exponential"],
)
def test_gains_are_told_from_biases_and_may_have_any_shape(norm, gains):
    if "weight" in dict(norm.named_parameters()):
        norm.g = nn.Parameter(torch.tensor(3.0))
    assert gains_of(norm, ROWS, TOKENS, WIDTH) == gains
