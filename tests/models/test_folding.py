"""Folding removes norms that are fixed maps, and no others, without changing the outputs."""

from functools import partial

import pytest
import torch

from normlab.models.folding import fixed_map, fold
from normlab.norms.base import NoNorm, Norm
from normlab.norms.make import make_norm
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Residual
from tests.models.small import BOS, GRID, PAD, PLACEMENTS, assert_close, sentences, seq2seq

# norms that apply the same fixed statistics at every position, and nothing else
ONE_ROW = ["bn", "bn_noisy", "global", "brn", "rbn", "mabn", "un", "repbn", "prepbn"]


def feeds_only_linear_layers(model):
    """Return whether a placement has a norm inside its branches, or at the end of the encoder."""
    inside = [part.branch_norm for part in model.modules() if isinstance(part, Residual)]
    end = model.encoder.final_norm
    return any(inside) or (isinstance(end, Norm) and not isinstance(end, NoNorm))


def outputs(model):
    source, _ = sentences([6, 3, 5], seed=1)
    target, _ = sentences([7, 4, 5], seed=2, first=BOS)
    streams = Tokens(source != PAD), Tokens(target != PAD)
    tokens = model(source, streams[0], target, streams[1])
    return model.project(tokens)[target != PAD]


@pytest.mark.parametrize(("norm", "place"), GRID)
def test_folding_does_not_change_the_outputs(norm, place):
    model = seq2seq(norm, place)
    expected, foldable = outputs(model), norm in ONE_ROW and feeds_only_linear_layers(model)
    folded = fold(model)
    assert_close(outputs(model), expected)
    assert bool(folded) == foldable


@pytest.mark.parametrize("norm", ["bn", "mabn", "un", "brn"])
def test_a_trained_norm_that_evaluates_with_batch_statistics_is_not_a_fixed_map(norm):
    built = make_norm(norm, 8, eval_stats="batch").double()
    for seed in range(6):
        built(torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(seed)).double() * 3 + 1)
    assert fixed_map(built.eval()) is None


@pytest.mark.parametrize("norm", ONE_ROW)
def test_folding_a_pre_norm_model_leaves_only_the_norm_before_the_output(norm):
    model = seq2seq(norm, "pre")
    folded = fold(model)
    left = [name for name, part in model.named_modules() if isinstance(part, RunningNorm)]
    assert left == ["decoder.final_norm"]
    assert "encoder.final_norm" in folded
    assert len(folded) == 2 * 2 + 1 + 2 * 3
    assert fold(model) == []


@pytest.mark.parametrize("place", PLACEMENTS)
def test_a_norm_inside_the_feed_forward_layer_folds_into_the_linear_layer_before_it(place):
    model = seq2seq("ln", place, ("*.inner", partial(make_norm, "bn")))
    expected = outputs(model)
    assert len(fold(model)) == 4
    assert_close(outputs(model), expected)


def test_a_norm_that_uses_batch_or_token_statistics_is_not_a_fixed_map():
    for norm in (make_norm("bn", 8, eval_stats="batch").eval(), make_norm("ln", 8).eval()):
        assert fixed_map(norm) is None
    assert fixed_map(make_norm("bn", 8).train()) is None


@pytest.mark.parametrize("norm", ["pn", "pn_v"])
def test_power_norm_is_a_fixed_map_only_without_group_scaling(norm):
    assert fold(seq2seq(norm, "pre")) == []
    model = seq2seq(norm, "pre", norm_values={"groups": None})
    expected = outputs(model)
    assert fold(model)
    assert_close(outputs(model), expected)
