"""Documents in shards on disk: nothing depends on their size, and damage is named."""

import os
import random
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from normlab.data.documents import spool as spooling
from normlab.data.documents.corpus import Document, DocumentCorpus
from normlab.data.documents.prepare import prepare_documents
from normlab.data.documents.shards import stem
from normlab.data.documents.spool import Sample, Seen

WORDS = ["lantern", "river", "walking", "walked", "talks", "blue", "seven", "quickly", "a", "the"]
COUNTS = {"train": 120, "valid": 30, "test": 5}
ARRAYS = ("documents", "begins", "characters")
LIMIT = 300  # tokens


class Generated(DocumentCorpus):
    """Documents that are made one at a time; `scale` times as many."""

    name = label = "generated"
    licence, language = "free", "en"

    def __init__(self, scale=1):
        self._counts = {split: scale * count for split, count in COUNTS.items()}

    def key(self):
        return f"{self._counts}"

    def splits(self):
        raise AssertionError("a corpus that streams is never read whole")

    def split_names(self):
        return list(self._counts)

    def stream(self):
        for split in ("test", "valid", "train"):
            rng = random.Random(split)
            for number in range(self._counts[split]):
                sentences = [
                    " ".join(rng.choices(WORDS, k=rng.randint(2, 9))) + "."
                    for _ in range(rng.randint(1, 8))
                ]
                yield split, Document(f"{split} {number}", tuple(sentences))


def prepare(cache, *, scale=1, shard_tokens=LIMIT, **settings):
    return prepare_documents(
        Generated(scale),
        vocab_size=60,
        pieces="wordpiece",
        lowercase=True,
        max_length=32,
        cache=cache,
        shard_tokens=shard_tokens,
        **settings,
    )


@pytest.fixture
def prepared(tmp_path):
    return prepare(tmp_path)


def test_shards_hold_whole_documents_and_about_as_many_tokens(prepared):
    shards = prepared.shards["train"]
    longest = prepared.description["document_lengths"]["train"]["max"]
    assert len(shards) == prepared.description["shards"]["train"] > 5
    sizes = [len(shard.text.ids) for shard in shards]
    # A part ends where its text has so many characters, so it is smaller than a shard.
    assert all(LIMIT <= size < 2 * LIMIT + longest for size in sizes[:-1])
    for shard in shards:
        assert shard.documents[0] == 0 and shard.documents[-1] == len(shard.text)
        assert shard.text.offsets[-1] == len(shard.text.ids) == len(shard.begins)
        assert isinstance(shard.text.ids, np.memmap) and isinstance(shard.begins, np.memmap)


def test_how_large_shards_are_changes_no_token_and_no_figure(prepared, tmp_path):
    whole = prepare(tmp_path, shard_tokens=10**9)
    assert set(whole.description.pop("shards").values()) == {1}
    prepared.description.pop("shards")
    assert prepared.description == whole.description
    assert list(prepared.splits) == list(COUNTS)
    for split, data in whole.splits.items():
        other = prepared.splits[split]
        assert np.array_equal(other.text.ids, data.text.ids)
        assert np.array_equal(other.text.offsets, data.text.offsets)
        for name in ARRAYS:
            assert np.array_equal(getattr(other, name), getattr(data, name)), name
            assert getattr(other, name).dtype == getattr(data, name).dtype, name


def test_no_text_stays_on_the_disk(prepared, tmp_path):
    assert not [path for path in tmp_path.rglob("*.txt")]


KILLED = """
import os, signal, sys
from pathlib import Path
from normlab.data.documents.encoded import EncodedDocuments
from tests.data.test_shards import prepare
save = EncodedDocuments.save
def save_some(self, folder, stem):
    save(self, folder, stem)
    if stem == "train.shard-00002":
        os.kill(os.getpid(), signal.SIGKILL)
EncodedDocuments.save = save_some
prepare(Path(sys.argv[1]))
"""


def test_a_preparation_that_is_killed_leaves_nothing_that_is_used(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("*.building-*"))) == 1
    whole = prepare(tmp_path / "other")
    again = prepare(tmp_path)
    assert not list(tmp_path.glob("*.building-*"))
    assert again.description == whole.description
    assert np.array_equal(again.splits["train"].text.ids, whole.splits["train"].text.ids)


def damage(cache, name):
    (path,) = cache.glob(f"*/{name}")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("array", ["ids", "offsets", "documents", "begins", "characters"])
def test_a_damaged_shard_is_named_with_the_cure(prepared, tmp_path, array):
    path = damage(tmp_path, f"{stem('train', 1)}.{array}.npy")
    shards = prepare(tmp_path).shards["train"]
    assert len(shards[2].text) > 0
    with pytest.raises(
        ValueError, match=rf"{path.name} is damaged: remove the folder {path.parent}"
    ):
        shards[1]


def test_a_damaged_first_shard_and_a_lost_one_are_prepared_anew(prepared, tmp_path):
    ids = prepared.splits["train"].text.ids
    damage(tmp_path, "train.ids.npy")
    assert np.array_equal(prepare(tmp_path).splits["train"].text.ids, ids)
    next(tmp_path.glob("*/train.shard-00003.begins.npy")).unlink()
    assert np.array_equal(prepare(tmp_path).splits["train"].text.ids, ids)


def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(spooling, "_RECENT", 100)
    peaks = []
    for scale in (2, 12):
        tracemalloc.start()
        prepared = prepare(tmp_path, scale=scale, sample_characters=5_000, shard_tokens=2_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    characters = prepared.description["characters"]["train"]
    assert characters > 200_000
    # The text itself would be twice as much: it is nowhere in memory.
    assert peaks[1] - peaks[0] < characters / 2


def test_the_vocabulary_is_learnt_from_a_sample_that_is_told(tmp_path):
    few = prepare(tmp_path, sample_characters=2_000)
    assert 0 < few.description["vocabulary"]["learnt_from_documents"] < COUNTS["train"]
    assert "learnt_from_documents" not in prepare(tmp_path).description["vocabulary"]


def document(text):
    return Document(text, (text,))


def test_a_sample_is_the_documents_of_the_smallest_marks_whatever_the_order():
    marks = {"aaaa": 5, "bb": 9, "cccc": 1, "dd": 7, "eeeeee": 3}
    for order in (list(marks), list(reversed(marks))):
        sample = Sample(12)
        for text in order:
            sample.add(document(text), marks[text])
        assert set(sample.sentences()) == {"cccc", "eeeeee"}
        assert sample.sentences() == [text for text in order if text in {"cccc", "eeeeee"}]


def test_a_sample_keeps_one_document_however_long():
    sample = Sample(3)
    for mark, text in enumerate(["long text", "longer text"]):
        sample.add(document(text), mark)
    assert sample.sentences() == ["long text"]


def test_marks_are_seen_once_however_many_there_are(monkeypatch):
    monkeypatch.setattr(spooling, "_RECENT", 4)
    rng, seen, known = random.Random(0), Seen(), set()
    for _ in range(2_000):
        mark = rng.choice([rng.randrange(500), 2**64 - 1 - rng.randrange(500)])
        assert seen.add(mark) == (mark not in known)
        known.add(mark)
