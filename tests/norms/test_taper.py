"""TaperNorm starts as RMS norm and ends as a fixed scale, fitted to it, that can be folded."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from normlab.models.folding import fold
from normlab.norms.make import make_norm
from normlab.norms.model_norms import ModelNorms
from normlab.norms.ramp import Clock
from normlab.norms.tokens import Tokens
from tests.models.small import BOS, PAD, logits, sentences, seq2seq

DIM = 12
STEPS = {"warmup_steps": 2, "taper_steps": 4}
VALID = torch.arange(5)[None] < torch.tensor([5, 2, 3])[:, None]


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 5, DIM, generator=generator, dtype=torch.double) * 2 + 1


@torch.no_grad()
def trained(last, **values):
    """Return the norm after some steps; its gain is changed after the first step."""
    norm = make_norm("taper", DIM, **{**STEPS, **values}).double()
    for step in range(1, last + 1):
        norm.begin_step(Clock(step))
        norm(batch(step).masked_fill(~VALID[..., None], 1e3), Tokens(VALID))
        if step == 1:
            norm.weight.copy_(torch.linspace(0.5, 2, DIM))
    return norm


@torch.no_grad()
@pytest.mark.parametrize("last", [0, 1, 2])
def test_during_the_warm_up_taper_norm_equals_rms_norm(last):
    norm, rms = trained(last), make_norm("rms", DIM, eps=1e-6).double()
    rms.weight.copy_(norm.weight)
    for _ in range(2):
        torch.testing.assert_close(norm(batch(9)), rms(batch(9)), rtol=1e-12, atol=1e-12)
        norm.eval()


@torch.no_grad()
def test_the_fixed_scale_is_the_least_squares_fit_to_the_real_tokens_of_the_warm_up():
    norm, x = trained(3, momentum=1.0), batch(2)[VALID]
    scaled = norm.weight * x
    root = (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    def gap(c):
        return (scaled / root - c * scaled).square().sum()

    c = norm.factor
    assert gap(c) < min(gap(1.0001 * c), gap(0.9999 * c))
    assert torch.equal(norm.late, norm.weight)
    assert torch.equal(trained(6, momentum=1.0).factor, c)


@torch.no_grad()
def test_the_gate_decays_along_a_half_cosine_until_the_norm_is_a_linear_map():
    gates = [trained(step).gate.item() for step in range(1, 9)]
    fall = [(1 + math.cos(math.pi * share)) / 2 for share in (0.25, 0.5, 0.75)]
    assert gates == pytest.approx([1, 1, *fall, 0, 0, 0])
    norm, x = trained(6), batch(9)
    norm.late.mul_(torch.linspace(1, 3, DIM))
    torch.testing.assert_close(norm(x), norm.factor * norm.late * x)
    assert make_norm("taper", DIM).last_steps(100) == {"warmup": 25, "taper": 75}


def test_folding_a_model_of_tapered_norms_does_not_change_its_loss():
    values = {**STEPS, "momentum": 0.5}
    rules = ("decoder.final", partial(make_norm, "rms"))
    model = seq2seq("taper", "pre", rules, norm_values=values).train()
    source, target = sentences([6, 3, 5], seed=1)[0], sentences([7, 4, 5], seed=2, first=BOS)[0]

    def loss():
        return F.cross_entropy(logits(model, source, target)[target != PAD], target[target != PAD])

    norms, optimizer = ModelNorms(model), torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(1, 8):
        norms.begin_step(step, 7)
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        if step == 4:
            assert fold(model.eval()) == []  # half-way through, its norms are not fixed maps
            model.train()
    with torch.no_grad():
        model.eval()
        expected = loss()
        assert len(fold(model)) == 2 * 2 + 1 + 2 * 3
        torch.testing.assert_close(loss(), expected, rtol=0, atol=1e-10)
