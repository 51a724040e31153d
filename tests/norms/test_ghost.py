"""Ghost batches: each group of sequences has statistics of its own, the running ones are whole."""

import pytest
import torch

from normlab.config.registry import option_names
from normlab.norms.base import RunningNorm, Stream
from normlab.train.build import make_norm
from tests.norms.test_padding import paddings

GHOSTS = [name for name in option_names("norm") if hasattr(make_norm(name, 8), "ghost")]
assert len(GHOSTS) >= 4
GROUPS = {  # the sequences of each group, of seven
    1: [[0], [1], [2], [3], [4], [5], [6]],
    3: [[0, 1, 2], [3, 4, 5], [6]],
    9: [[0, 1, 2, 3, 4, 5, 6]],
    "interleaved-3": [[0, 3, 6], [1, 4], [2, 5]],
}
PADDINGS = [(option, way) for option in GHOSTS for way in paddings(option)]


def _batch():
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(7, 6, 8, generator=generator, dtype=torch.float64) * 2 + 1
    valid = torch.arange(6)[None] < torch.tensor([6, 3, 2, 5, 6, 4, 5])[:, None]
    return x, valid


def _output_and_gradient(norm, x, valid):
    x = x.clone().requires_grad_()
    y = norm(x, Stream(valid)) * valid[..., None]
    (gradient,) = torch.autograd.grad((y * torch.sin(x.detach())).sum(), x)
    return y.detach(), gradient


@pytest.mark.parametrize("size", GROUPS)
@pytest.mark.parametrize(("option", "padding"), PADDINGS)
def test_each_group_comes_out_as_it_would_alone(option, size, padding):
    x, valid = _batch()
    norm = make_norm(option, 8, ghost=size, padding=padding).double()
    found = _output_and_gradient(norm, x, valid)
    for group in GROUPS[size]:
        alone = make_norm(option, 8, padding=padding).double()
        expected = _output_and_gradient(alone, x[group], valid[group])
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours[group], theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [3, "interleaved-3"])
@pytest.mark.parametrize(("option", "padding"), PADDINGS)
def test_running_statistics_are_those_of_the_whole_batch(option, size, padding):
    x, valid = _batch()
    ghosts = make_norm(option, 8, ghost=size, padding=padding).double()
    whole = make_norm(option, 8, padding=padding).double()
    for norm in (ghosts, whole):
        norm(x, Stream(valid))
    assert isinstance(ghosts, RunningNorm) and isinstance(whole, RunningNorm)
    torch.testing.assert_close(ghosts.tables, whole.tables, rtol=1e-10, atol=1e-12)
    assert ghosts.seen is not None and whole.seen is not None
    for ours, theirs in zip(ghosts.seen, whole.seen, strict=True):
        assert ours.shape == theirs.shape


def test_interleaved_groups_are_a_view_of_the_batch_as_in_cifar10_fast():
    """Two groups of a batch `[B, C, P]` are the channels of its view as `[B / 2, 2 C, P]`."""
    x, _ = _batch()
    x = x[:6]
    views = torch.nn.BatchNorm1d(16, eps=1e-5).double()
    expected = views(x.mT.reshape(3, 16, 6)).reshape(6, 8, 6).mT
    norm = make_norm("bn", 8, ghost="interleaved-3").double()
    torch.testing.assert_close(norm(x, Stream()), expected)
    whole = torch.nn.BatchNorm1d(8).double()  # the moments are merged, not averaged
    whole(x.mT)
    torch.testing.assert_close(norm.running_var[0], whole.running_var)


@pytest.mark.parametrize("size", [0, "8", "interleaved-0", "interleaved"])
def test_a_group_of_no_sequence_is_refused(size):
    with pytest.raises(ValueError, match=rf"norm\.ghost={size}.*at least 1 sequence"):
        make_norm("bn", 8, ghost=size)
