"""Norms against torch's own modules, plain formulas and worked examples."""

import pytest
import torch
from torch import nn

from normlab.norms.base import Stream
from normlab.train.build import make_norm

DIM, LENGTHS = 6, torch.tensor([9, 3, 5, 1, 7])
VALID = torch.arange(9)[None] < LENGTHS[:, None]


def tensors():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(5, 9, DIM, generator=generator, dtype=torch.float64) * 2 + 1
    return x.requires_grad_(), torch.randn(5, 9, DIM, generator=generator, dtype=torch.float64)


def compare(ours, theirs, x, pull):
    """Outputs at real tokens, and the gradients of a weighted sum of them, agree."""
    y, expected = ours(x, Stream(VALID))[VALID], theirs(x)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    grads = [torch.autograd.grad((z * pull[VALID]).sum(), x)[0] for z in (y, expected)]
    torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-9)


def of_sequences(norm):
    """Apply instance norm of torch to each sequence; a single value has no spread."""

    def apply(x):
        real = [row[:length] for row, length in zip(x, LENGTHS, strict=True)]
        return torch.cat([norm(r.T[None])[0].T if len(r) > 1 else r * 0 + norm.bias for r in real])

    return apply


@pytest.mark.parametrize(
    ("option", "reference"),
    [
        ("ln", nn.LayerNorm(DIM)),
        ("rms", nn.RMSNorm(DIM, eps=1e-6)),
        ("gn", nn.GroupNorm(3, DIM)),
        ("in", nn.InstanceNorm1d(DIM, affine=True)),
        ("bn", nn.BatchNorm1d(DIM)),
    ],
)
def test_norms_on_real_tokens_are_those_of_torch(option, reference):
    values = {"gn": {"groups": 3}, "rms": {"eps": 1e-6}}.get(option, {})
    norm, reference = make_norm(option, DIM, **values).double(), reference.double()
    for name, parameter in norm.named_parameters():
        parameter.data.copy_(torch.linspace(0.5, 2, DIM))
        getattr(reference, name).data.copy_(parameter)
    apply = of_sequences(reference) if option == "in" else lambda x: reference(x[VALID])
    for _ in range(3):
        compare(norm, apply, *tensors())
    if option == "bn":
        torch.testing.assert_close(norm.running_mean[0], reference.running_mean)
        torch.testing.assert_close(norm.running_var[0], reference.running_var)
    norm.eval(), reference.eval()
    compare(norm, apply, *tensors())


@pytest.mark.parametrize(("option", "axes"), [("seqn", (1, 2)), ("global", (0, 1, 2))])
def test_pooled_together_without_padding(option, axes):
    norm, (x, _) = make_norm(option, DIM).double(), tensors()
    mean, var = x.mean(axes, keepdim=True), x.var(axes, unbiased=False, keepdim=True)
    torch.testing.assert_close(norm(x, Stream()), (x - mean) / (var + norm.eps).sqrt())


def gradient_of(detach):
    """Return input, upstream gradient, output, gradient, and the deviation of the input."""
    x, g = tensors()
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
    _, g, _, gradient, std = gradient_of(detach)
    mean, bound = g.mean(-1) / std, g.var(-1, correction=0) / std.square()
    torch.testing.assert_close(gradient.mean(-1), mean if mean_left else torch.zeros_like(mean))
    variance = gradient.var(-1, correction=0)
    if variance_left:
        torch.testing.assert_close(variance, bound)
    else:
        assert (variance < bound).all()


def test_layer_norm_of_the_gradient_alone_leaves_the_tokens_as_they_are():
    x, _, y, gradient, _ = gradient_of("value")
    assert torch.equal(y, x)
    torch.testing.assert_close(gradient, gradient_of("none")[3])


def test_padding_moves_the_statistics_it_is_included_in():
    """[1..5] has mean 3 and variance 2; with five zeros next to them mean 1.5, variance 3.25."""
    x = torch.tensor([1.0, 2, 3, 4, 5, 0, 0, 0, 0, 0]).view(1, 10, 1)
    stream, found = Stream(torch.arange(10)[None] < 5), {}
    for padding in ("exclude", "include", "fill"):
        norm = make_norm("bn", 1, padding=padding, momentum=1.0, unbiased=False)
        norm(x, stream)
        found[padding] = (norm.running_mean.item(), norm.running_var.item())
    assert found["exclude"] == pytest.approx((3, 2))
    assert found["include"] == pytest.approx((1.5, 3.25))
    assert found["fill"] == pytest.approx((3, 1))  # the variance times 5 real of 10 tokens


def test_the_documents_worked_example():
    """Two samples, three tokens, four features: position 0 has the mean 1.5 over both samples."""
    first = torch.arange(1.0, 13).view(3, 4)
    x = torch.stack([first, first - 2])
    norm = make_norm("bn_sample", 4, momentum=1.0, unbiased=False, num_positions=3)
    norm(x, Stream())
    assert norm.running_mean.flatten().tolist() == pytest.approx([1.5, 5.5, 9.5])
    expected = torch.tensor([1.0, 2, 3, 4, -1, 0, 1, 2]).var(unbiased=False)
    assert norm.running_var.flatten()[0].item() == pytest.approx(expected.item())
    norm = make_norm("bn", 4, momentum=1.0, unbiased=False)
    norm(x, Stream())
    assert norm.running_mean.flatten().tolist() == pytest.approx([4.0, 5.0, 6.0, 7.0])


def test_interleaved_groups_are_a_view_of_the_batch_as_in_cifar10_fast():
    """Two groups of a batch `[B, C, P]` are the channels of its view as `[B / 2, 2 C, P]`."""
    x = torch.randn(6, 9, 8, dtype=torch.float64) * 2 + 1
    expected = nn.BatchNorm1d(16).double()(x.mT.reshape(3, 16, 9)).reshape(6, 8, 9).mT
    norm = make_norm("bn", 8, ghost="interleaved-3").double()
    torch.testing.assert_close(norm(x, Stream()), expected)
    whole = nn.BatchNorm1d(8).double()  # the moments are merged, not averaged
    whole(x.mT)
    torch.testing.assert_close(norm.running_var[0], whole.running_var)


def test_norms_that_pool_positions_in_eval_see_the_future():
    assert {o for o in ("in", "seqn", "gn_sample", "gn", "ln") if make_norm(o, 8).sees_future} == {
        *("in", "seqn", "gn_sample")
    }
    assert not make_norm("bn", 8).sees_future
    assert make_norm("bn", 8, eval_stats="batch").sees_future
    assert not make_norm("bn_position", 8, eval_stats="batch").sees_future
