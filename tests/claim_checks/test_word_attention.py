"""Attention over article 3's words, computed in numpy."""

import math

import numpy as np
import pytest

from normlab.claim_checks.word_attention import words_of_width
from normlab.inspection.examples.articles import WORDS_WITH_999
from tests.claim_checks.by_hand import attention, layer_norm, numbers, text_of


def test_without_projections_the_logit_of_a_normed_token_is_the_root_of_the_width():
    """So the slope at four features says nothing about wider models."""
    for width in (4, 64, 128):
        x = np.random.default_rng(width).standard_normal((3, width))
        logits, weights = attention(layer_norm(x), layer_norm(x))
        np.testing.assert_allclose(np.diag(logits), math.sqrt(width), rtol=1e-4)
    assert (1 - (weights**2).sum(-1)).max() < 1e-3
    values, holds = numbers("outlier.softmax")
    raw = np.array(WORDS_WITH_999)
    assert values["logit"] == pytest.approx((raw @ raw.T).max() / 2) and holds == [True]
    assert values["slope"] == 0


@pytest.mark.parametrize("width", [4, 64])
def test_the_saturation_of_the_softmax_matches_a_simulation_in_numpy(width):
    """The shares agree with shares from different random draws in a different library."""
    generator = np.random.default_rng(width)
    x = words_of_width(width).numpy()
    np.testing.assert_array_equal(x[:, :4], WORDS_WITH_999)
    values, holds = numbers("outlier.width")
    assert holds == [True, True]
    for name, y in (("none", x), ("ln", layer_norm(x))):
        slopes, saturated = [], []
        for _ in range(400):
            maps = generator.standard_normal((2, width, width)) / math.sqrt(width)
            _, weights = attention(y @ maps[0], y @ maps[1])
            slopes.append(1 - (weights**2).sum(-1))
            saturated.append(weights.max(-1) > 0.99)
        assert np.mean(slopes) == pytest.approx(values[f"{name}_slope_{width}"], abs=0.05)
        assert np.mean(saturated) == pytest.approx(values[f"{name}_saturated_{width}"], abs=0.06)


def test_votes_shares_and_scale_of_attention_match_hand_calculations():
    raw = np.array(WORDS_WITH_999)
    votes = raw @ raw.T
    assert f"{votes[0, 0]:,.0f} points for itself" in text_of("outlier.votes")
    assert numbers("outlier.votes")[1] == [True, True] and votes[1:, 1:].max() < 101
    shares = np.exp([1.1, 1.2, 0.9]) / np.exp([1.1, 1.2, 0.9]).sum()
    slope = (shares * (1 - shares)).max()
    text = " ".join(f"{share:.3f}" for share in shares)
    assert text_of("outlier.values").startswith(f"shares {text}, largest slope {slope:.3f}")
    # Logits are quadratic in their input.
    assert "100 times as large" in text_of("outlier.scale")
    assert numbers("outlier.scale")[1] == [True, True]
