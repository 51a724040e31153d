"""Norms against torch's own modules, plain formulas and worked examples."""

import pytest
import torch
from torch import nn

from normlab.config.registry import option_names
from normlab.norms.layer import TokenNorm
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens

DIM, LENGTHS = 6, torch.tensor([9, 3, 5, 1, 7])
VALID = torch.arange(9)[None] < LENGTHS[:, None]


def tensors():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(5, 9, DIM, generator=generator, dtype=torch.float64) * 2 + 1
    return x.requires_grad_(), torch.randn(5, 9, DIM, generator=generator, dtype=torch.float64)


def compare(ours, theirs, x, pull):
    """Assert that outputs at real tokens, and the gradients of a weighted sum of them, agree."""
    y, expected = ours(x, Tokens(VALID))[VALID], theirs(x)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    grads = [torch.autograd.grad((z * pull[VALID]).sum(), x)[0] for z in (y, expected)]
    torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-9)


def of_sequences(norm):
    """Apply torch's instance norm to each sequence; a single token gives the bias."""

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
def test_norms_match_torchs_modules_on_real_tokens(option, reference):
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


def test_sequence_norm_pools_positions_and_features():
    norm, (x, _) = make_norm("seqn", DIM).double(), tensors()
    mean, var = x.mean((1, 2), keepdim=True), x.var((1, 2), unbiased=False, keepdim=True)
    torch.testing.assert_close(norm(x, Tokens()), (x - mean) / (var + norm.eps).sqrt())


def test_norms_that_pool_positions_in_eval_see_the_future():
    assert {o for o in ("in", "seqn", "gn_sample", "gn", "ln") if make_norm(o, 8).sees_future} == {
        *("in", "seqn", "gn_sample")
    }
    running, batch = make_norm("bn", 8), make_norm("bn", 8, eval_stats="batch")
    assert running.incremental and not running.sees_future
    assert batch.sees_future and not batch.batch_independent
    assert not make_norm("bn_position", 8, eval_stats="batch").sees_future


@pytest.mark.parametrize("option", sorted({*option_names("norm")} - {"none"}))
def test_a_norms_docstring_says_which_other_file_holds_its_formula(option):
    kind = type(make_norm(option, 8))
    owner = next(each for each in kind.__mro__ if "formula" in vars(each))
    file = owner.__module__.rpartition(".")[2] + ".py"
    assert owner is not TokenNorm, "it has a formula"
    if owner.__module__ != kind.__module__:
        assert f"`{owner.__name__}.formula` (`{file}`" in " ".join(str(kind.__doc__).split())
