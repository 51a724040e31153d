"""Preparing documents: what is encoded, left out, counted, refused and cached."""

import gzip
import hashlib
from itertools import pairwise

import numpy as np
import pytest

from normlab.data.documents import Document, DocumentCorpus, FolderDocuments
from normlab.data.encoded import columns_in, copy_runs
from normlab.data.prepare import prepare_documents
from normlab.data.targets import text_windows


class Given(DocumentCorpus):
    """A corpus of given documents that counts how often it is read."""

    name = label = "given"
    licence = "none"
    language = "en"

    def __init__(self, splits):
        self.reads = 0
        self._splits = {
            split: [Document(f"{split} {i}", tuple(x)) for i, x in enumerate(documents)]
            for split, documents in splits.items()
        }

    def splits(self):
        self.reads += 1
        return self._splits

    def key(self):
        return f"{self._splits}"


TRAIN = [
    ["The cat sat.", "It sat on the mat, all day."],
    ["A dog barked."],
    ["Caf\u00e9 mats are flat.", "So it goes.", "The end."],
]
SPLITS = {"train": TRAIN, "valid": [["The dog sat.", "It did."]], "test": [["A mat."], ["Cats!"]]}
SIZES = {"wordpiece": 100, "bpe": 300}
each_kind = pytest.mark.parametrize("pieces", ["wordpiece", "bpe"])


def prepare(corpus, cache, *, pieces="bpe", vocab_size=None, lowercase=False, max_length=64):
    return prepare_documents(
        corpus if isinstance(corpus, DocumentCorpus) else Given(corpus),
        vocab_size=vocab_size or SIZES[pieces],
        pieces=pieces,
        lowercase=lowercase,
        max_length=max_length,
        cache=cache,
    )


def texts_of(prepared, split):
    data = prepared.splits[split]
    sentences = [prepared.tokenizer.decode(data.text[i]) for i in range(len(data.text))]
    return [sentences[a:b] for a, b in pairwise(data.documents)]


def test_sentences_come_back_in_their_documents(tmp_path):
    prepared = prepare(SPLITS, tmp_path)
    for split, documents in SPLITS.items():
        assert texts_of(prepared, split) == documents
        data = prepared.splits[split]
        assert len(data) == len(documents)
        assert data.characters.tolist() == [len(x) for document in documents for x in document]
        assert len(data.begins) == len(data.text.ids)
        assert data.begins[data.text.offsets[:-1]].all()


def test_description_by_hand(tmp_path):
    description = prepare(SPLITS, tmp_path, pieces="wordpiece").description
    assert description["sizes"] == {"train": 3, "valid": 1, "test": 2}
    assert description["sentences"] == {"train": 6, "valid": 2, "test": 2}
    assert description["words"] == {"train": 22, "valid": 5, "test": 3}
    # With the blank after each sentence; the accent is two bytes.
    assert description["characters"] == {"train": 96, "valid": 21, "test": 13}
    assert description["bytes"] == {"train": 97, "valid": 21, "test": 13}
    assert description["one_sentence"] == {"train": 1, "valid": 0, "test": 2}
    assert description["unknown"] == {"train": 0, "valid": 0, "test": 1}  # "!"
    assert description["repeated_documents"] == {"train": 0, "valid": 0, "test": 0}
    assert description["without_token"] == {"train": 0, "valid": 0, "test": 0}
    assert description["vocabulary"]["size"] <= 100
    text = "The dog sat.\nIt did.\n"
    assert description["checksums"]["valid"] == hashlib.sha256(text.encode()).hexdigest()
    assert (description["source"], description["licence"]) == ("given", "none")


@each_kind
def test_token_counts_are_those_of_the_arrays(tmp_path, pieces):
    prepared = prepare(SPLITS, tmp_path, pieces=pieces)
    for split, data in prepared.splits.items():
        sentences = [sentence for document in SPLITS[split] for sentence in document]
        lengths = [len(ids) for ids, _ in prepared.tokenizer.encode(sentences)]
        assert data.text.lengths.tolist() == lengths
        assert prepared.description["tokens"][split] == sum(lengths)
        assert prepared.description["lengths"][split]["max"] == max(lengths)
        assert data.text.ids.min() >= 1
    sizes = [sum(x) for x in ([len(i) for i, _ in prepared.tokenizer.encode(d)] for d in TRAIN)]
    assert prepared.description["document_lengths"]["train"]["max"] == max(sizes)
    assert prepared.description["document_lengths"]["train"]["median"] == sorted(sizes)[1]


def test_no_document_stands_in_two_splits(tmp_path):
    splits = {
        "train": [["One."], ["Two."], ["Three.", "Four."], ["One."], ["Three."], ["Two."]],
        "valid": [["Two."], ["Five."], ["Six."], ["Five."]],
        "test": [["Six."], ["Seven."]],
        "test_more": [["Seven."], ["Eight."], ["Six."]],
    }
    prepared = prepare(splits, tmp_path)
    assert {split: texts_of(prepared, split) for split in splits} == {
        "train": [["One."], ["Three.", "Four."], ["Three."]],
        "valid": [["Two."], ["Five."]],
        "test": [["Six."], ["Seven."]],
        "test_more": [["Eight."]],
    }
    assert prepared.description["repeated_documents"] == {
        "train": 3,
        "valid": 2,
        "test": 0,
        "test_more": 2,
    }
    assert list(prepared.splits) == list(splits)


def test_a_split_of_repeated_documents_alone_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the split train has no document"):
        prepare({"train": [["One."]], "valid": [["One."]], "test": [["Two."]]}, tmp_path)


def test_the_vocabulary_comes_from_training_text_alone(tmp_path):
    first = prepare(SPLITS, tmp_path, pieces="wordpiece")
    other = prepare(
        {**SPLITS, "test": [["\u6f22 zebra zebra zebra."]]}, tmp_path, pieces="wordpiece"
    )
    ids = range(len(first.tokenizer))
    assert other.tokenizer.tokens(ids) == first.tokenizer.tokens(ids)
    assert other.description["unknown"]["test"] > 0


def test_sentences_without_a_token_are_counted(tmp_path):
    splits = {
        **SPLITS,
        "train": [["The cat sat.", "\u200b", "The end."], ["\x00", "\u200b"], ["A dog."]],
        "valid": [["\u200b", "The dog."]],
    }
    prepared = prepare(splits, tmp_path, pieces="wordpiece")
    assert prepared.description["without_token"] == {"train": 3, "valid": 1, "test": 0}
    assert prepared.description["sizes"] == {"train": 2, "valid": 1, "test": 2}
    assert prepared.description["sentences"]["train"] == 3
    train = prepared.splits["train"]
    assert train.documents.tolist() == [0, 2, 3]
    assert train.characters.tolist() == [12, 8, 6]
    assert (train.text.lengths > 0).all()


def test_a_split_without_any_token_is_refused(tmp_path):
    splits = {**SPLITS, "test": [["\u200b"], ["\x00"]]}
    with pytest.raises(ValueError, match="no sentence of test has a token"):
        prepare(splits, tmp_path, pieces="wordpiece")
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_long_sentences_are_counted(tmp_path):
    prepared = prepare(SPLITS, tmp_path)
    lengths = {split: data.text.lengths for split, data in prepared.splits.items()}
    longest = int(lengths["train"].max())
    assert prepared.description["long_sentences"] == {"train": 0, "valid": 0, "test": 0}
    for limit in (4, longest - 1, longest):
        again = prepare(SPLITS, tmp_path, max_length=limit)
        counts = {split: int((x > limit).sum()) for split, x in lengths.items()}
        assert again.description["long_sentences"] == counts
        assert again.description["max_length"] == limit
        assert np.array_equal(again.splits["train"].text.ids, prepared.splits["train"].text.ids)
    assert (
        prepare(SPLITS, tmp_path, max_length=longest - 1).description["long_sentences"]["train"]
        == (lengths["train"] == longest).sum()
    )


@each_kind
def test_a_second_preparation_reads_the_cache(tmp_path, pieces):
    corpus = Given(SPLITS)
    first = prepare(corpus, tmp_path, pieces=pieces)
    reads = corpus.reads
    second = prepare(corpus, tmp_path, pieces=pieces)
    assert corpus.reads == reads
    assert second.description == first.description
    assert second.tokenizer.encode(TRAIN[0]) == first.tokenizer.encode(TRAIN[0])
    for split, data in second.splits.items():
        given = first.splits[split]
        for name in ("documents", "begins", "characters"):
            assert np.array_equal(getattr(data, name), getattr(given, name))
        assert np.array_equal(data.text.offsets, given.text.offsets)
    prepare(corpus, tmp_path, pieces=pieces, max_length=5)
    assert corpus.reads == reads


@pytest.mark.parametrize(
    "change", [dict(vocab_size=290), dict(lowercase=True), dict(pieces="wordpiece", vocab_size=300)]
)
def test_another_setting_is_prepared_anew(tmp_path, change):
    corpus = Given(SPLITS)
    prepare(corpus, tmp_path)
    reads = corpus.reads
    prepare(corpus, tmp_path, **change)
    assert corpus.reads > reads


def test_another_text_is_prepared_anew(tmp_path):
    prepare(SPLITS, tmp_path)
    other = prepare({**SPLITS, "test": [["Other text."]]}, tmp_path)
    assert texts_of(other, "test") == [["Other text."]]


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_missing_split_is_named(tmp_path, split):
    splits = {name: documents for name, documents in SPLITS.items() if name != split}
    with pytest.raises(ValueError, match=f"has no {split} split .*give train, valid and test"):
        prepare(splits, tmp_path)


@pytest.mark.parametrize("split", ["train", "valid", "test", "test_more"])
def test_an_empty_split_is_named_with_the_ways_out(tmp_path, split):
    with pytest.raises(ValueError, match=rf"the split {split} has no document .*{split}: 0.*give"):
        prepare({**SPLITS, split: []}, tmp_path)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"valid 0 \(valid\) has no sentence"),
        (["One.", " \t"], r"valid 0 \(valid\), sentence 2: blank"),
        (["One.\nTwo."], r"valid 0 \(valid\), sentence 1: .*a line break inside"),
    ],
)
def test_a_document_that_cannot_be_one_is_named(tmp_path, document, message):
    with pytest.raises(ValueError, match=message):
        prepare({**SPLITS, "valid": [document]}, tmp_path)


def test_a_vocabulary_of_a_large_text_is_learned_from_every_kth_document(tmp_path, monkeypatch):
    splits = {**SPLITS, "train": [[f"Word{i} is here."] for i in range(40)]}
    monkeypatch.setattr("normlab.data.prepare.SAMPLE_CHARACTERS", 200)
    monkeypatch.setattr("normlab.data.prepare._DOCUMENTS", 2)
    prepared = prepare(splits, tmp_path)
    assert prepared.description["vocabulary"]["learnt_from_documents"] == 10
    assert texts_of(prepared, "train") == splits["train"]


def test_a_vocabulary_without_room_is_refused(tmp_path):
    with pytest.raises(ValueError, match="vocab_size=100 is too small"):
        prepare(SPLITS, tmp_path, vocab_size=100)


def test_runs_of_tokens_become_rows():
    out = np.zeros((3, 5), np.int64)
    at, counts = np.array([1, 0, 4]), np.array([3, 0, 1])
    copy_runs(out, at, np.arange(10, 20), np.array([2, 5, 9]), counts)
    assert out.tolist() == [[0, 12, 13, 14, 0], [0] * 5, [0, 0, 0, 0, 19]]
    assert np.array_equal(columns_in(out.shape, at, counts), out > 0)


def test_brown_is_predicted_once(normlab_data, tmp_path):
    with gzip.open(normlab_data / "brown" / "brown.txt.gz", "rt", encoding="utf-8") as file:
        documents = file.read().split("\n\n")
    (tmp_path / "brown.txt").write_text("\n\n".join(documents[::5]), "utf-8")  # all take 5 s
    corpus = FolderDocuments(
        str(tmp_path),
        form="sentences",
        boundary="blank_line",
        language="en",
        valid_share=0.1,
        test_share=0.1,
    )
    prepared = prepare(corpus, tmp_path / "cache", vocab_size=2_000, max_length=128)
    description = prepared.description
    assert sum(description["sizes"].values()) == 100
    assert sum(description["sentences"].values()) > 10_000
    for name in ("repeated_documents", "without_token", "unknown"):
        assert set(description[name].values()) == {0}
    for split, data in prepared.splits.items():
        windows = text_windows(data.documents, data.text.lengths, max_length=128)
        assert windows.lengths.sum() == description["tokens"][split] + len(data)
        assert windows.lengths.max() <= 128
