"""Ids on disk and padded arrays."""

import numpy as np
import pytest
import torch

from normlab.data.encoded import EncodedPairs, EncodedText

SENTENCES = [[5, 6, 7], [], [8], [9, 10]]


@pytest.fixture
def text():
    return EncodedText.from_sentences(SENTENCES)


def test_saved_sentences_are_memory_mapped_when_loaded(text, tmp_path):
    text.append(tmp_path, "train.source")
    loaded = EncodedText.load(tmp_path, "train.source")
    assert [loaded[i].tolist() for i in range(len(loaded))] == SENTENCES
    assert isinstance(loaded.ids, np.memmap) and loaded.ids.dtype == np.int32
    assert loaded.lengths.tolist() == [3, 0, 1, 2]


def test_padded_sentences_end_with_the_end_mark(text):
    padded = text.padded(np.array([3, 0, 1]), pad_id=0, suffix=2)
    assert padded.tolist() == [[9, 10, 2, 0], [5, 6, 7, 2], [2, 0, 0, 0]]
    assert padded.dtype == torch.int64


def test_select_copies_the_chosen_sentences_and_pair_lengths_count_the_end_mark(text):
    chosen = text.select(np.array([3, 0]))
    assert [chosen[0].tolist(), chosen[1].tolist()] == [[9, 10], [5, 6, 7]]
    pairs = EncodedPairs(text, EncodedText.from_sentences([[1], [2], [3, 3], [4]]))
    assert pairs.lengths.tolist() == [[4, 2], [1, 2], [2, 3], [3, 2]]
