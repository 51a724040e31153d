"""A norm outside any model: fresh copies, and a norm after the first steps of a run."""

from functools import partial

import torch

from normlab.inspection.norm.bare_norm import VALID, BareNorm, train_step
from normlab.norms.make import make_norm


def test_a_norm_trained_further_equals_one_trained_in_one_go():
    bare = BareNorm(partial(make_norm, "bn"))
    norm = bare.trained(3)
    output, gradient = train_step(norm, 4)
    assert output.shape == gradient.shape == (int(VALID.sum()), bare.width)
    assert torch.equal(norm.running_mean, bare.trained(4).running_mean)
    assert not torch.equal(norm.running_mean, bare.trained(3).running_mean)


def test_each_call_returns_a_copy_in_training_mode():
    bare = BareNorm(partial(make_norm, "bn"))
    bare.new().running_mean.fill_(7.0)
    assert not bare.new().running_mean.any() and bare.new().training
    assert bare.new(torch.float32).weight.dtype == torch.float32


def test_tokens_and_values_depend_only_on_their_seed():
    bare = BareNorm(partial(make_norm, "ln"))
    first, valid = bare.tokens(1)
    assert first.shape == (4, 6, 64) and valid.sum(1).tolist() == [6, 2, 4, 5]
    assert torch.equal(first, bare.values(4, 6, seed=1))
    assert not torch.equal(first, bare.values(4, 6, seed=2))
