"""How padding counts: not at all, like any token, or as the mean; and the documents' figures."""

from typing import get_args, get_type_hints

import pytest
import torch

from normlab.config.registry import option_names
from normlab.norms.base import RunningNorm, Stream
from normlab.train.build import make_norm

NORMS = option_names("norm")
BATCH = [n for n in NORMS if isinstance(make_norm(n, 8), RunningNorm)]


def _padded(x, extra, value):
    """Return `x` with `extra` columns of padding, and its stream."""
    pad = torch.full((x.shape[0], extra, x.shape[2]), value, dtype=x.dtype)
    valid = torch.arange(x.shape[1] + extra) < x.shape[1]
    return torch.cat([x, pad], 1), Stream(valid.expand(x.shape[0], -1))


def test_padding_moves_the_statistics_it_is_included_in():
    """[1..5] has mean 3 and variance 2; with five zeros beside them mean 1.5, variance 3.25."""
    x = torch.tensor([1.0, 2, 3, 4, 5]).view(1, 5, 1)
    wide, stream = _padded(x, 5, 0.0)
    found = {}
    for padding in ("exclude", "include", "fill"):
        norm = make_norm("bn", 1, padding=padding, momentum=1.0, unbiased=False)
        norm(wide, stream)
        found[padding] = (norm.running_mean.item(), norm.running_var.item())
    assert found["exclude"] == pytest.approx((3, 2))
    assert found["include"] == pytest.approx((1.5, 3.25))
    assert found["fill"] == pytest.approx((3, 1))  # the variance times 5 real of 10 tokens


def paddings(option):
    """Return the ways of counting padding that a norm has."""
    return get_args(get_type_hints(type(make_norm(option, 8)).__init__)["padding"])


@pytest.mark.parametrize(
    ("option", "padding"),
    [(name, way) for name in BATCH for way in paddings(name) if make_norm(name, 8).exact_gradient],
)
def test_gradient_is_that_of_the_function(option, padding):
    torch.manual_seed(1)
    norm = make_norm(option, 3, padding=padding).double()
    x = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(4)[None] < torch.tensor([4, 2, 3])[:, None]
    assert torch.autograd.gradcheck(
        lambda x: norm(x, Stream(valid)) * valid[..., None], x, atol=1e-6
    )


def test_the_documents_worked_example():
    """Two samples, three tokens, four features: position 0 has the mean 1.5 over both samples."""
    first = torch.arange(1.0, 13).view(3, 4)
    x = torch.stack([first, first - 2])
    stream = Stream(torch.ones(2, 3, dtype=torch.bool))
    norm = make_norm("bn_sample", 4, momentum=1.0, unbiased=False, num_positions=3)
    norm(x, stream)
    assert norm.running_mean.flatten().tolist() == pytest.approx([1.5, 5.5, 9.5])
    expected = torch.tensor([1.0, 2, 3, 4, -1, 0, 1, 2]).var(unbiased=False)
    assert norm.running_var.flatten()[0].item() == pytest.approx(expected.item())
    norm = make_norm("bn", 4, momentum=1.0, unbiased=False)
    norm(x, stream)
    assert norm.running_mean.flatten().tolist() == pytest.approx([4.0, 5.0, 6.0, 7.0])
