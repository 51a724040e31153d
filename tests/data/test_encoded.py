"""Ids on disk and padded arrays."""

import numpy as np
import pytest
import torch

from normlab.data.encoded import EncodedPairs, EncodedText

SENTENCES = [[5, 6, 7], [], [8], [9, 10]]


@pytest.fixture
def text():
    return EncodedText.from_sentences(SENTENCES)


def test_sentences_come_back_mapped(text, tmp_path):
    text.append(tmp_path, "train.source")
    loaded = EncodedText.load(tmp_path, "train.source")
    assert [loaded[i].tolist() for i in range(len(loaded))] == SENTENCES
    assert isinstance(loaded.ids, np.memmap) and loaded.ids.dtype == np.int32
    assert loaded.lengths.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("marks", [{"suffix": 2}, {"prefix": 1, "suffix": 2}])
def test_padded_equals_a_loop(text, marks):
    indices = np.array([3, 0, 1])
    before = [marks["prefix"]] if "prefix" in marks else []
    rows = [[*before, *SENTENCES[i], 2] for i in indices]
    width = max(map(len, rows))
    expected = [row + [0] * (width - len(row)) for row in rows]
    padded = text.padded(indices, pad_id=0, **marks)
    assert padded.tolist() == expected
    assert padded.dtype == torch.int64


def test_select_packs_again_and_lengths_of_pairs_count_the_end_mark(text):
    chosen = text.select(np.array([3, 0]))
    assert [chosen[0].tolist(), chosen[1].tolist()] == [[9, 10], [5, 6, 7]]
    pairs = EncodedPairs(text, EncodedText.from_sentences([[1], [2], [3, 3], [4]]))
    assert pairs.lengths.tolist() == [[4, 2], [1, 2], [2, 3], [3, 2]]
