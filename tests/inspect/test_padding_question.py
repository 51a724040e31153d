"""What padding does to statistics where it is known, and to nothing where it must not."""

import math
import re

import numpy as np
import pytest
import torch

from normlab.inspect import padding
from normlab.inspect.padding import alike, compare
from normlab.norms.base import Stream
from normlab.norms.pool import Moments
from tests.inspect.subjects import EVERY_KIND, OVER_BATCH, examined, subject, trained

FEW = [0.0, 0.3, 0.8]


@EVERY_KIND
def test_true_moments_and_local_norms_do_not_move(tmp_path, monkeypatch, norm, placement):
    monkeypatch.setattr(padding, "SHARES", tuple(FEW))
    monkeypatch.setattr(padding, "SENTENCES", 8)
    about = trained(tmp_path, f"norm={norm}", f"placement={placement}")
    finding = examined(about, padding.padding)
    figures = finding.values
    assert figures["shares"] == FEW
    for mode in ("training", "eval"):
        for values in figures["moved"][mode].values():
            assert len(values) == len(FEW)
            assert max(values) < 1e-5
    assert bool(figures["statistics"]) == (norm in OVER_BATCH)
    assert finding.answer.startswith("real tokens' outputs change not at all")
    assert figures["real_share"]["encoder"][0] == 0
    for stack, length in zip(("encoder", "decoder"), figures["lengths"], strict=True):
        wide = [math.ceil(length / (1 - share) - 1e-9) for share in FEW]
        expected = [1 - length / width for width in wide]
        assert figures["real_share"][stack] == pytest.approx(expected, abs=1e-6)


def include(tmp_path, *overrides, **given):
    return trained(tmp_path, "norm=bn", "norm.padding=include", *overrides, **given)


def test_padding_that_counts_moves_outputs_in_training_alone(tmp_path):
    finding = examined(include(tmp_path), padding.padding)
    moved = finding.values["moved"]
    for stack in ("encoder", "decoder"):
        assert moved["training"][stack][0] == 0
        assert moved["training"][stack][8] > moved["training"][stack][1] > 1e-3
        assert max(moved["eval"][stack]) < 1e-5
    most = max(moved["training"][stack][8] for stack in moved["training"])
    assert f"{100 * most:.0f}" in finding.answer
    assert re.search(r"not at all( \(rounding\))? in eval", finding.answer)


def test_zeros_that_count_shrink_mean_and_variance_as_predicted(tmp_path):
    # The first norm of a pre-norm encoder sees the embedding, which is zero at padding.
    about = include(tmp_path, "placement=pre")
    x, valid, indices = embedded(about)
    first, padded = (padding._pass(about, "training", indices, share) for share in (0.0, 0.8))
    found = compare(first.moments["encoder.0.self"], padded.moments["encoder.0.self"])
    x = x[valid].double()
    mean, var = x.mean(0), x.var(0, correction=0)
    p = padded.padding["encoder"]
    predicted = (1 - p) * (var + p * mean.square())
    assert found["mean_ratio"] == pytest.approx(1 - p, rel=1e-4)
    assert found["var_ratio"] == pytest.approx(float(predicted.sum() / var.sum()), rel=1e-4)
    offset = p * math.sqrt(float(mean.square().mean() / var.mean()))
    assert found["mean_offset"] == pytest.approx(offset, rel=1e-4, abs=1e-6)


def embedded(about):
    """Return the embedded source tokens of the sentences that the examination takes."""
    lengths = about.task.lengths("train")
    longest = int(256 * 0.2)
    picked = alike(lengths, longest=longest, generator=about.generator("padding"))
    batch = about.batch("train", picked.tolist())
    with torch.no_grad():
        x = about.model.encoder.embedding(batch.source, Stream(batch.source_valid))
    return x, batch.source_valid, picked.tolist()


def test_documents_padding_by_hand():
    # 1 2 3 4 5 and five zeros: mean 3 -> 1.5, variance 2 -> 3.25 (claim 7).
    table = torch.tensor([1.0, 2, 3, 4, 5])
    alone = Moments(*(torch.full((1, 1, 1), float(v)) for v in (table.mean(), 2.0, 5, 5)))
    padded = Moments(*(torch.full((1, 1, 1), float(v)) for v in (1.5, 3.25, 10, 10)))
    assert compare(alone, padded) == pytest.approx(
        {"mean_ratio": 0.5, "mean_offset": 1.5 / math.sqrt(2), "var_ratio": 3.25 / 2}
    )


def picked(lengths, longest=100):
    generator = np.random.default_rng(0)
    return alike(np.array(lengths), longest=longest, generator=generator)


def test_the_most_common_combination_of_lengths_is_taken():
    lengths = [(5, 6)] * 9 + [(5, 7)] * 40 + [(5, 8)] * 20
    assert len(found := picked(lengths)) == 32
    assert all(lengths[i] == (5, 7) for i in found)
    assert len(set(found)) == 32
    lengths = [(5, 6)] * 9 + [(5, 7)] * 4
    assert [lengths[i] for i in picked(lengths)] == [(5, 6)] * 9


def test_shares_stop_where_positions_do(tmp_path):
    rows = ("norm=bn_position", "norm.num_positions=40")
    figures = padding.padding(subject(tmp_path, *rows)).values
    assert figures["shares"][-1] < 0.8
    assert max(figures["lengths"]) / (1 - figures["shares"][-1]) <= 40
    full = ("norm=ln", "model.max_positions=20", "task.max_length=20")
    short = padding.padding(subject(tmp_path, *full))
    assert short.values["shares"][-1] < 0.8
