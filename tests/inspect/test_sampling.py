"""The law of the batch mean on tokens whose law is known, and on models."""

import numpy as np
import pytest

from normlab.inspect import sampling
from normlab.inspect.sampling import Sums, describe
from tests.inspect.subjects import EVERY_KIND, examined, trained

SIZES = [1, 2, 4, 8, 16, 32]


def orders(groups, sets=2000, largest=32):
    rng = np.random.default_rng(7)
    return np.stack([rng.permutation(groups)[:largest] for _ in range(sets)])


def counts(groups, low=3, high=9):
    return np.random.default_rng(5).integers(low, high, groups)


def test_independent_tokens_have_the_law_of_tokens():
    number = counts(600)
    tokens = np.random.default_rng(3).normal(2.0, 3.0, (number.sum(), 24))
    found = describe(Sums.of(tokens, number), orders(600), SIZES)
    assert found["slope"] == pytest.approx(-1, abs=0.03)
    assert found["design_effect"] == pytest.approx([1] * 6, abs=0.12)
    assert found["sigma2"] == pytest.approx(24 * 9, rel=0.02)


def test_sets_that_are_a_large_part_of_the_sentences_are_corrected():
    number = np.full(64, 2)
    tokens = np.random.default_rng(3).normal(0, 1, (128, 200))
    sums = Sums.of(tokens, number)
    found = describe(sums, orders(64, largest=32), [1, 32])
    variance = np.array(found["variance"]) * found["sigma2"]
    # Without replacement Var = S^2 / N (1 - N / M), with S^2 among all sentence means.
    spread = tokens.reshape(64, 2, 200).mean(1).var(0, ddof=1).sum()
    assert variance == pytest.approx([spread, spread / 32], rel=0.03)


def test_resampling_by_hand():
    sums = Sums.of(np.array([[1.0], [3.0], [6.0], [0.0]]), np.array([2, 1, 1]))
    found = describe(sums, np.array([[0, 1], [2, 0]]), [1, 2])
    assert found["tokens"] == pytest.approx([2 / (1 / 2 + 1), 3])
    variance = np.array(found["variance"]) * found["sigma2"]
    # Means 2 and 0 of single sentences, 10 / 3 and 4 / 3 of pairs, out of three.
    assert variance == pytest.approx([2 / (1 - 1 / 3), 2 / (1 - 2 / 3)])
    assert sums.variance == pytest.approx(46 / 4 - 2.5**2)


def test_equal_tokens_of_a_sentence_are_worth_one():
    tokens = np.random.default_rng(3).normal(0, 1, (600, 24)).repeat(4, 0)
    found = describe(Sums.of(tokens, np.full(600, 4)), orders(600), SIZES)
    assert found["design_effect"] == pytest.approx([4] * 6, rel=0.12)


@EVERY_KIND
def test_figures_of_models(tmp_path, monkeypatch, norm, placement):
    monkeypatch.setattr(sampling, "SENTENCES", 128)
    finding = examined(
        trained(tmp_path, f"norm={norm}", f"placement={placement}"), sampling.batch_mean
    )
    figures = finding.values
    assert figures["sizes"] == [1, 2, 4, 8, 16]
    assert figures["sentences"] == 128
    mean = figures["mean"]
    assert mean["slope"] < -0.5
    assert len(mean["variance"]) == 5
    by_site = figures["by_site"]
    identities = norm == "none"
    assert ("decoder.final" in by_site) == (identities or placement == "pre")
    assert ("encoder.embedding" in by_site) == identities
    for key in ("variance", "design_effect"):
        across = [site[key][2] for site in by_site.values()]
        assert mean[key][2] == pytest.approx(sum(across) / len(across))
