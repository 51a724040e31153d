"""What a token may depend on: itself, the past, its sentence, its batch; never padding."""

import pytest
import torch

from normlab.norms.base import Norm
from tests.models.small import BOS, GRID, PAD, assert_close, logits, sentences, seq2seq

SOURCE, TARGET = [5, 3, 6, 4], [4, 6, 3, 5]


def batch():
    return sentences(SOURCE, seed=1)[0], sentences(TARGET, seed=2, first=BOS)[0]


def is_(model, quality):
    return all(getattr(m, quality) for m in model.modules() if isinstance(m, Norm))


def wider(ids, columns=3):
    return torch.nn.functional.pad(ids, (0, columns), value=PAD)


@pytest.mark.parametrize(("norm", "place"), GRID)
def test_in_eval_an_incremental_norm_sees_no_later_token(norm, place):
    model = seq2seq(norm, place)
    source, target = batch()
    changed = target.clone()
    changed[:, 3:] = torch.where(target[:, 3:] != PAD, (target[:, 3:] - 2) % 10 + 3, PAD)
    assert (changed != target).any()
    before, after = logits(model, source, target), logits(model, source, changed)
    same = torch.allclose(before[:, :3], after[:, :3], rtol=1e-9, atol=1e-10)
    assert same == is_(model, "incremental"), "`incremental` says what a token depends on"


@pytest.mark.parametrize(("norm", "place"), GRID)
def test_in_eval_a_batch_independent_norm_sees_its_sentence_alone(norm, place):
    model = seq2seq(norm, place)
    if not is_(model, "batch_independent"):
        pytest.skip(f"{norm} takes statistics of the batch in eval")
    source, target = batch()
    together = logits(model, source, target)
    for row, length in enumerate(TARGET):
        alone = logits(model, source[row : row + 1, : SOURCE[row]], target[row : row + 1, :length])
        assert_close(together[row : row + 1, :length], alone)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("norm", "place"), GRID)
def test_more_padding_changes_no_real_output(norm, place, training):
    model = seq2seq(norm, place).train(training)
    source, target = batch()
    expected = logits(model, source, target)[target != PAD]
    padded = wider(target, 4)
    found = logits(model, wider(source), padded)[padded != PAD]
    assert_close(found, expected)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_the_embedding_is_zero_at_padding_and_nowhere_else(positions):
    model = seq2seq(positions=positions)
    ids, stream = sentences(SOURCE)
    x = model.encoder.embedding(ids, stream)
    assert not x[~stream.valid].any()
    assert x[stream.valid].abs().sum(-1).min() > 0


def test_a_sentence_beyond_the_positions_is_refused():
    model = seq2seq(max_positions=5)
    ids, stream = sentences([6])
    with pytest.raises(ValueError, match=r"has only 5: raise model.max_positions"):
        model.encode(ids, stream)
