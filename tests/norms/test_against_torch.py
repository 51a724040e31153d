"""Norms against torch's own modules, on the packed real tokens."""

import pytest
import torch
from torch import nn

from normlab.norms.base import Stream
from normlab.train.build import make_norm

DIM = 6
LENGTHS = (9, 3, 5, 1, 7)


def _valid():
    return torch.arange(9)[None] < torch.tensor(LENGTHS)[:, None]


def _tensors(dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(5, 9, DIM, generator=generator, dtype=dtype) * 2 + 1
    return x.requires_grad_(), torch.randn(5, 9, DIM, generator=generator, dtype=dtype)


def _scrambled(norm, reference):
    """Give both modules the same weights, none of them 0 or 1."""
    for name in ("weight", "bias"):
        if getattr(reference, name, None) is not None:
            value = torch.linspace(0.5, 2, DIM, dtype=torch.float64)
            getattr(norm, name).data.copy_(value)
            getattr(reference, name).data.copy_(value)
    return norm, reference


def _compare(ours, theirs, x, pull):
    """Outputs at real tokens, and the gradients of a weighted sum of them, agree."""
    valid = _valid()
    y = ours(x, Stream(valid))[valid]
    (gradient,) = torch.autograd.grad((y * pull[valid]).sum(), x)
    expected = theirs(x)
    (expected_gradient,) = torch.autograd.grad((expected * pull[valid]).sum(), x)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-8, atol=1e-9)


def test_layer_norm():
    norm, reference = _scrambled(make_norm("ln", DIM).double(), nn.LayerNorm(DIM).double())
    x, pull = _tensors()
    _compare(norm, lambda x: reference(x[_valid()]), x, pull)


def _gradient(detach):
    """Return input, upstream gradient, output, gradient, and the deviation of the input."""
    x, g = _tensors()
    y = make_norm("ln", DIM, affine=False, eps=0.0, detach=detach).double()(x, Stream())
    (gradient,) = torch.autograd.grad(y, x, g)
    return x, g, y, gradient, x.std(-1, correction=0)


@pytest.mark.parametrize(
    ("detach", "mean_left", "variance_left"),
    [("none", False, False), ("mean", True, False), ("std", False, True), ("both", True, True)],
)
def test_a_gradient_keeps_mean_and_variance_through_detached_statistics_alone(
    detach, mean_left, variance_left
):
    """The theorem of Xu et al. 2019: through the others it loses its mean, or a part of it."""
    _, g, _, gradient, std = _gradient(detach)
    mean, bound = g.mean(-1) / std, g.var(-1, correction=0) / std.square()
    torch.testing.assert_close(gradient.mean(-1), mean if mean_left else torch.zeros_like(mean))
    variance = gradient.var(-1, correction=0)
    if variance_left:
        torch.testing.assert_close(variance, bound)
    else:
        assert (variance < bound).all()


def test_layer_norm_of_the_gradient_alone_leaves_the_tokens_as_they_are():
    x, _, y, gradient, _ = _gradient("value")
    assert torch.equal(y, x)
    torch.testing.assert_close(gradient, _gradient("none")[3])


def test_rms_norm():
    norm = make_norm("rms", DIM)
    norm, reference = _scrambled(norm.double(), nn.RMSNorm(DIM, eps=norm.eps).double())
    x, pull = _tensors()
    _compare(norm, lambda x: reference(x[_valid()]), x, pull)


def test_group_norm():
    norm, reference = _scrambled(
        make_norm("gn", DIM, groups=3).double(), nn.GroupNorm(3, DIM).double()
    )
    x, pull = _tensors()
    _compare(norm, lambda x: reference(x[_valid()]), x, pull)


def test_instance_norm_of_each_sequence():
    norm, reference = _scrambled(
        make_norm("in", DIM).double(), nn.InstanceNorm1d(DIM, affine=True).double()
    )
    x, pull = _tensors()

    def theirs(x):
        rows = []
        for sentence, length in zip(x, LENGTHS, strict=True):
            real = sentence[:length]
            # torch refuses a single value; it has no spread, so only the bias is left
            alone = (real * 0 + reference.bias) if length == 1 else reference(real.T[None])[0].T
            rows.append(alone)
        return torch.cat(rows)

    _compare(norm, theirs, x, pull)


def test_batch_norm_and_its_running_statistics():
    norm, reference = _scrambled(make_norm("bn", DIM).double(), nn.BatchNorm1d(DIM).double())
    for _ in range(3):
        x, pull = _tensors()
        _compare(norm, lambda x: reference(x[_valid()]), x, pull)
    assert reference.running_mean is not None and reference.running_var is not None
    torch.testing.assert_close(norm.running_mean.flatten(), reference.running_mean)
    torch.testing.assert_close(norm.running_var.flatten(), reference.running_var)
    norm.eval()
    reference.eval()
    _compare(norm, lambda x: reference(x[_valid()]), x, pull)


@pytest.mark.parametrize(("option", "axes"), [("seqn", (1, 2)), ("global", (0, 1, 2))])
def test_pooled_together_without_padding(option, axes):
    norm = make_norm(option, DIM).double()
    x, _ = _tensors()
    y = norm(x, Stream(torch.ones(5, 9, dtype=torch.bool)))
    mean, var = x.mean(axes, keepdim=True), x.var(axes, unbiased=False, keepdim=True)
    torch.testing.assert_close(y, (x - mean) / (var + norm.eps).sqrt())
