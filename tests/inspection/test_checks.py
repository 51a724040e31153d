"""Computed checks, compared with independent computations in numpy or by hand."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from normlab.inspection.claim_checks import (
    compute,
    facts,
    images,
    marks,
    order,
    outlier,
    padding,
    positions,
    shape,
)
from normlab.inspection.claim_checks.inputs import draw, draw_tokens
from normlab.inspection.examples.articles import MARKS, WORDS_WITH_999


def numbers(name):
    """Return all numbers in a check's findings, and whether each finding supports its claim."""
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
    raw = np.array(WORDS_WITH_999)
    assert found["logit"] == pytest.approx((raw @ raw.T).max() / 2) and holds == [True]
    assert found["slope"] == 0


@pytest.mark.parametrize("width", [4, 64])
def test_the_softmax_lives_with_layer_norm_and_random_projections(width):
    """The shares agree with those from other random draws and another library."""
    generator = np.random.default_rng(width)
    x = outlier.words_of_width(width).numpy()
    np.testing.assert_array_equal(x[:, :4], WORDS_WITH_999)
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


def batch_norm(x, axis=0):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def said(name):
    """Return the findings of a check as one sentence."""
    return "; ".join(each.finding for each in compute(name))


def test_the_words_of_article_3_by_hand():
    ln = layer_norm(np.array(WORDS_WITH_999))
    assert ln[0, 2] == pytest.approx(ln[1, 1], abs=0.01) and not ln[2].any()
    assert "becomes \u22120.57 \u22120.55 1.73 \u22120.61" in said("outlier.words")
    assert "becomes \u22120.58 1.73 \u22120.58 \u22120.58" in said("outlier.words")
    assert "0.00 0.00 0.00 0.00: the word disappears (without eps it is not a number)" in said(
        "outlier.words"
    )
    found, holds = numbers("outlier.range")
    assert holds == [True, False]
    assert [found["of_4"], found["of_768"]] == pytest.approx([3**0.5, 767**0.5], rel=0.01)


def test_votes_shares_and_scale_of_attention_by_hand():
    raw = np.array(WORDS_WITH_999)
    votes = raw @ raw.T
    assert f"{votes[0, 0]:,.0f} points for itself" in said("outlier.votes")
    assert numbers("outlier.votes")[1] == [True, True] and votes[1:, 1:].max() < 101
    shares = np.exp([1.1, 1.2, 0.9]) / np.exp([1.1, 1.2, 0.9]).sum()
    slope = (shares * (1 - shares)).max()
    text = " ".join(f"{share:.3f}" for share in shares)
    assert said("outlier.values").startswith(f"shares {text}, largest slope {slope:.3f}")
    # Logits are quadratic in their input.
    assert "100 times as large" in said("outlier.scale")
    assert numbers("outlier.scale")[1] == [True, True]


def test_the_shape_of_a_distribution_stays_as_scipy_measures_it():
    x = np.random.default_rng(0).exponential(size=(500, 3))
    measured = shape.skewness(torch.tensor(x)).numpy()
    np.testing.assert_allclose(measured, stats.skew(x, axis=0))
    np.testing.assert_allclose(stats.skew(batch_norm(x), axis=0), measured, rtol=1e-9)
    found, holds = numbers("shape.kept")
    assert found["before"] == pytest.approx(2, abs=0.1) == found["after"]  # an exponential's
    assert holds == [True, False]
    assert numbers("shape.moments")[1] == [True, True, False]


def test_a_product_multiplies_a_vector_by_the_root_of_the_width_times_the_weights_variance():
    factors = [piece.numbers["factor"] for piece in compute("shape.growth")]
    assert factors == pytest.approx([16, 1, 3**-0.5], rel=0.02)
    assert numbers("shape.growth")[1] == [True, False, False]


def test_entropy_and_likeness_are_those_of_the_words_themselves():
    words = ["a", "man", "a", "dog", "a", "a", "the"]
    times, spectrum = [4, 1, 1, 1], [[1, 3], [4, 1]]
    assert positions.entropy(spectrum) == pytest.approx(stats.entropy(times, base=2))
    pairs = [a == b for i, a in enumerate(words) for j, b in enumerate(words) if i != j]
    assert positions.alike(spectrum) == pytest.approx(np.mean(pairs))
    for corpus in positions.read().values():
        total = {key: sum(t * n for t, n in rows) for key, rows in corpus["positions"].items()}
        assert total["1"] == total["last"] == corpus["sentences"] < total["all"]
    assert set(numbers("positions.differ")[1]) == {True}
    assert set(numbers("positions.alike")[1]) == {False}


def test_lengths_and_likeness_of_pixels_by_hand():
    assert [positions.quantile([[3, 1], [9, 1], [5, 18]], p) for p in (0.05, 0.5, 1.0)] == [3, 5, 9]
    for corpus in positions.read().values():
        assert sum(number for _, number in corpus["lengths"]) == corpus["sentences"]
    pixels = draw(50, 2, 2)
    correlations = np.corrcoef(pixels.flatten(1).T)
    sides = [correlations[a, b] for a, b in ((0, 1), (2, 3), (0, 2), (1, 3))]
    assert images.mean_correlation(pixels, 1) == pytest.approx(np.abs(sides).mean())
    assert numbers("images.local")[1] == [True]


def test_over_100_layers_the_first_gradient_explodes_without_a_norm_alone():
    assert numbers("depth.gradients")[1] == [False, True, True, False]


def test_the_batch_of_three_cell_by_cell():
    x, real = (each.numpy() for each in padding.padded_batch(1, 3, 5))
    assert real.sum() == 9 and real[2].all()
    counted, left_out = batch_norm(x.reshape(15, -1)), batch_norm(x[real])
    moved = counted[real.reshape(-1)] - left_out
    share = np.linalg.norm(moved) / np.linalg.norm(left_out)
    found, holds = numbers("padding.batch_of_three")
    assert f"changes by {100 * share:.1f} %" in said("padding.batch_of_three")
    assert (found["cells"], found["padding"]) == (15, 6)
    assert holds == [True, True, True, False, True]


def test_padding_at_position_3_touches_no_real_token():
    x, real = (each.numpy() for each in padding.padded_batch(3, 2))
    assert not real[:, 3].any() and real[:, 2].tolist() == [True, False]
    # C alone at its position becomes 0; next to a zero it becomes 1 or -1 in each feature.
    column = batch_norm(x[:, 2])
    assert np.median(np.abs(column)) == pytest.approx(1, abs=0.01)
    found, holds = numbers("padding.position_3")
    assert found["moved"] == pytest.approx(np.sqrt(np.mean(column[0] ** 2)))
    assert holds == [True, False]
    assert "padding changes C at position 2, by" in said("padding.position_3")


def test_zeros_do_not_stay_zeros():
    x, real = (each.numpy() for each in padding.padded_batch(3, 2))
    found, holds = numbers("padding.zero")
    pads = batch_norm(x.reshape(10, -1))[~real.reshape(-1)]
    assert found["largest"] == pytest.approx(np.abs(pads).max()) and holds == [True, False, False]


def test_a_share_of_zeros_mixes_two_distributions():
    values = np.random.default_rng(0).normal(3, 2, 600)
    mixture = np.concatenate([values, np.zeros(200)])
    p, m, v = 0.25, values.mean(), values.var()
    assert mixture.mean() == pytest.approx((1 - p) * m)
    assert mixture.var() == pytest.approx((1 - p) * v + p * (1 - p) * m**2)
    assert numbers("padding.share")[1] == [True] and "0.5 m at 50%" in said("padding.share")


def test_pairs_in_order_are_kendalls():
    x, y = np.random.default_rng(0).normal(size=(2, 3, 7))
    pairs, whole = order.pairs_in_order(torch.tensor(x), torch.tensor(y))
    taus = [stats.kendalltau(a, b).statistic for a, b in zip(x, y, strict=True)]
    assert pairs == pytest.approx((1 + np.mean(taus)) / 2) and whole == 0
    tokens = draw(64, 16, 4).numpy()
    rows = [each.swapaxes(1, 2).reshape(-1, 16) for each in (tokens, layer_norm(tokens))]
    taus = [stats.kendalltau(a, b).statistic for a, b in zip(*rows, strict=True)]
    found = compute("order.time")
    assert found[0].numbers["pairs"] == pytest.approx((1 + np.mean(taus)) / 2)
    assert found[1].numbers == {"pairs": 1, "whole": 1}
    assert {piece.standing for piece in found} == {"contradicts"}


def test_a_scale_and_shift_undo_batch_norm_and_not_layer_norm():
    x = draw_tokens(32, 16).numpy().reshape(512, -1)
    # The best linear fit to one feature leaves the share of variance that it does not explain.
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(x.T, layer_norm(x).T, strict=True)]
    left = np.sum(x.var(0) * (1 - np.square(correlation))) / x.var(0).sum()
    found = compute("affine.identity")
    assert found[1].numbers["left"] == pytest.approx(np.sqrt(left))
    assert found[0].numbers["left"] < 1e-12


def test_gradients_of_parts_by_torchs_own_norms():
    x, target = draw_tokens(16, 12).flatten(0, 1), draw_tokens(16, 12, seed=3).flatten(0, 1)
    start = draw(64, 64) / 8
    found = {piece.question: piece.numbers["moved"] for piece in compute("batch.gradients")}
    for name, norm in (("bn", nn.BatchNorm1d(64)), ("ln", nn.LayerNorm(64))):
        for parts in (2, 4):
            weights = [start.clone().requires_grad_() for _ in range(2)]
            for weight, number in zip(weights, (1, parts), strict=True):
                for tokens, wanted in zip(x.chunk(number), target.chunk(number), strict=True):
                    (norm.double()(tokens @ weight) * wanted).sum().backward()
            whole, divided = (weight.grad for weight in weights)
            share = float((divided - whole).norm() / whole.norm())
            how = "two processes" if parts == 2 else "four steps"
            (moved,) = (v for key, v in found.items() if key.startswith(name) and how in key)
            assert moved == pytest.approx(share, abs=1e-6)


def test_order_and_directions_of_mixing():
    assert numbers("batch.order")[1] == [True, True]
    assert numbers("mixing.axes")[1] == [True, False, True, True]
    assert "attention mixes positions, features" in said("mixing.axes")
    x, weight = draw(2, 6, 8), draw(5, 8, seed=2)
    convolution = nn.Conv1d(8, 5, 1, bias=False).double()
    convolution.weight.data.copy_(weight[:, :, None])
    torch.testing.assert_close(convolution(x.mT).mT, nn.functional.linear(x, weight))
    assert numbers("mixing.kernel")[1] == [False]


def test_shifts_and_colours_by_torchs_own_norms():
    image = draw(4, 36, 8)
    planes = image.mT.unflatten(-1, (6, 6))
    for norm in (nn.BatchNorm2d(8), nn.InstanceNorm2d(8), nn.GroupNorm(8, 8)):
        moved = planes.clone()
        moved[0] = planes[0].roll((2, 3), (1, 2))
        before, after = (norm.double()(each)[0] for each in (planes, moved))
        torch.testing.assert_close(after, before.roll((2, 3), (1, 2)))
    assert images.shifted(image[0]).equal(planes[0].roll((2, 3), (1, 2)).flatten(1).T)
    assert numbers("images.shift")[1] == [True, False, True]
    colours = layer_norm(np.array([[50.0] * 3, [10, 20, 30], [100, 200, 300]]))
    assert not colours[0].any() and colours[1] == pytest.approx(colours[2], abs=0.001)
    assert numbers("images.grey")[1] == [True, True]


def test_batch_norm_shares_nothing_between_channels_and_layer_norm_does():
    x = draw(4, 36, 8).mT
    other = x.clone()
    other[:, 0] *= 5
    norm = nn.BatchNorm1d(8).double()
    assert norm(x)[:, 1:].equal(norm(other)[:, 1:])
    assert numbers("images.channels")[1] == [False, True]


def test_rms_keeps_the_mean_of_a_token_as_torchs_own_does():
    x = draw(64, 64, 256) + 3
    y = nn.functional.rms_norm(x, [256], eps=1e-6)
    found, holds = numbers("shape.rms")
    assert holds == [True, False]
    wanted = {
        "mean": y.mean(-1).mean(),
        "var": y.var(-1, correction=0).mean(),
        "square": 1.0,
        "by_ln": 0.0,
    }
    assert found == pytest.approx({k: float(v) for k, v in wanted.items()}, abs=1e-3)


def test_marks_are_the_z_scores_of_a_subject_or_of_a_pupil():
    table = np.array(MARKS)
    np.testing.assert_allclose(marks.standardized("bn"), stats.zscore(table, axis=0), atol=1e-6)
    np.testing.assert_allclose(marks.standardized("ln"), stats.zscore(table, axis=1), atol=1e-6)
    assert set(numbers("marks.subjects")[1]) == set(numbers("marks.coach")[1]) == {True}


def test_the_articles_code_runs_or_raises_what_torch_raises():
    with pytest.raises(RuntimeError, match="running_mean should contain 4 elements not 3"):
        nn.BatchNorm1d(3)(torch.randn(2, 4, 3))
    assert numbers("code.article_1")[1] == [True, False, True]
    assert "running_mean should contain 4 elements not 3" in said("code.article_1")
    assert numbers("code.article_3")[1] == [True, True]
    assert "[2, 3, 4] and [2, 64, 32, 32]" in said("code.article_3")


def test_the_parameters_of_bert_base_by_hand():
    d, hidden = 768, 4 * 768
    embeddings = (30_522 + 512 + 2) * d + 2 * d
    layer = 4 * (d * d + d) + (d * hidden + hidden) + (hidden * d + d) + 2 * 2 * d
    assert numbers("facts.bert_base") == ({"total": embeddings + 12 * layer + d * d + d}, [True])


def test_the_norms_of_surveyed_models_are_those_that_their_authors_publish():
    rows = facts.surveyed()
    known = {"BertModel": ("layer", "post"), "GPT2Model": ("layer", "pre")}
    known |= {"LlamaModel": ("rms", "pre"), "T5Model": ("rms", "pre")}
    for name, (kind, order_) in known.items():
        assert ([*rows[name]["norms"]], rows[name]["order"]) == ([kind], order_), name
    text = said("facts.norms")
    either = [name for name, row in rows.items() if row["norms"].keys() & {"layer", "rms"}]
    assert text.startswith(f"{len(either)} of {len(rows)} model classes do")
    first = [name for name, row in rows.items() if row["order"] in ("pre", "both")]
    assert numbers("facts.placement")[1] == [len(first) > len(rows) / 2]
    assert f"the blocks of {len(first)} start with a norm" in said("facts.placement")
    known = {"test_resnet": "batch", "test_vit": "layer", "regnety_040_sgn": "group"}
    images = json.loads(facts.VISION.read_text("utf-8"))["classes"]
    assert {name: max(images[name], key=images[name].get) for name in known} == known
    assert said("facts.vision_norms").startswith(f"{sum('batch' in r for r in images.values())} of")


def test_a_norm_after_the_sum_changes_what_passes_by_a_sub_layer_of_zeros():
    x = draw_tokens(8, 16).numpy()
    after = batch_norm(x.reshape(-1, x.shape[-1])).reshape(x.shape), layer_norm(x)
    expected = [np.linalg.norm(y - x) / np.linalg.norm(x) for y in after]
    moved = [each.numbers["moved"] for each in compute("residual.signal")]
    assert moved == pytest.approx([*expected, 0], abs=1e-6)
    assert numbers("residual.signal")[1] == [True, False, True]


def test_one_sentence_is_a_quarter_of_a_standard_deviation_from_the_running_mean():
    """The value for independent tokens: one over the square root of their number, here 16."""
    distances, holds = numbers("modes.sentence")
    assert holds == [True] and distances["one"] == pytest.approx(1 / math.sqrt(16), abs=0.01)
    assert distances["many"] < 2 / math.sqrt(60 * 32 * 16 * 0.1)
