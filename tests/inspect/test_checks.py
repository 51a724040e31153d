"""Computed checks against computations of their own, in numpy or by hand."""

import math

import numpy as np
import pytest

from normlab.inspect.checks import compute, outlier


def numbers(name):
    """Return all numbers of a check, and per question whether it supports its claim."""
    found = compute(name)
    merged = {key: value for piece in found for key, value in piece.numbers.items()}
    return merged, [piece.standing == "supports" for piece in found]


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attention(query, key):
    logits = query @ key.T / math.sqrt(query.shape[-1])
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return logits, weights / weights.sum(-1, keepdims=True)


def test_without_projections_the_logit_of_any_token_is_the_root_of_the_width():
    """So the slope at four features, once in the ledger, says nothing about wider models."""
    for width in (4, 64, 128):
        x = np.random.default_rng(width).standard_normal((3, width))
        logits, weights = attention(layer_norm(x), layer_norm(x))
        np.testing.assert_allclose(np.diag(logits), math.sqrt(width), rtol=1e-4)
    assert (1 - (weights**2).sum(-1)).max() < 1e-3
    found, holds = numbers("outlier.softmax")
    _, weights = attention(*[layer_norm(np.array(outlier.SENTENCE))] * 2)
    assert found["logit"] == pytest.approx(2, abs=1e-6) and holds == [True, False]
    assert found["slope"] == pytest.approx(1 - (weights[0] ** 2).sum())


@pytest.mark.parametrize("width", [4, 64])
def test_the_softmax_lives_with_layer_norm_and_random_projections(width):
    """The same shares from other draws and another library."""
    generator = np.random.default_rng(width)
    x = outlier.sentence(width).numpy()
    np.testing.assert_array_equal(x[:, :4], outlier.SENTENCE)
    found, holds = numbers("outlier.width")
    assert holds == [True, True]
    for name, y in (("none", x), ("ln", layer_norm(x))):
        slopes, saturated = [], []
        for _ in range(400):
            maps = generator.standard_normal((2, width, width)) / math.sqrt(width)
            _, weights = attention(y @ maps[0], y @ maps[1])
            slopes.append(1 - (weights**2).sum(-1))
            saturated.append(weights.max(-1) > 0.99)
        assert np.mean(slopes) == pytest.approx(found[f"{name}_slope_{width}"], abs=0.05)
        assert np.mean(saturated) == pytest.approx(found[f"{name}_saturated_{width}"], abs=0.06)
