"""Outputs do not depend on padding, and sentences beyond the model's limit are refused."""

import pytest
import torch

from tests.models.small import BOS, GRID, PAD, assert_close, logits, sentences, seq2seq

SOURCE, TARGET = [5, 3, 6, 4], [4, 6, 3, 5]


def batch():
    return sentences(SOURCE, seed=1)[0], sentences(TARGET, seed=2, first=BOS)[0]


def wider(ids, columns=3):
    return torch.nn.functional.pad(ids, (0, columns), value=PAD)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("norm", "place"), GRID)
def test_more_padding_does_not_change_the_outputs_of_real_tokens(norm, place, training):
    model = seq2seq(norm, place).train(training)
    source, target = batch()
    expected = logits(model, source, target)[target != PAD]
    padded = wider(target, 4)
    found = logits(model, wider(source), padded)[padded != PAD]
    assert_close(found, expected)


def test_a_sentence_longer_than_max_positions_is_refused():
    model = seq2seq(max_positions=5)
    ids, tokens = sentences([6])
    with pytest.raises(ValueError, match=r"has only 5; raise model.max_positions"):
        model.encode(ids, tokens)
