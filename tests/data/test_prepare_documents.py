"""Prepared documents: their encoding, repeats, description, errors and cache."""

import hashlib
import unicodedata
from itertools import pairwise

import pytest

from normlab.data.documents import DocumentCorpus
from normlab.data.prepare_documents import prepare_documents
from normlab.data.vocabulary import DocumentTokenizer


class Given(DocumentCorpus):
    """A corpus with given documents that counts how often it is read."""

    name = label = "given"
    licence = "none"
    language = "en"

    def __init__(self, splits):
        self.reads, self._splits = 0, splits

    def documents(self):
        self.reads += 1
        for split in sorted(self._splits, key=lambda x: (x == "train", x == "valid", x)):
            for document in self._splits[split]:
                yield split, document

    def key(self):
        return f"{self._splits}"


TRAIN = [
    ["The cat sat.", "It sat on the mat, all day."],
    ["A dog barked."],
    ["Caf\u00e9 mats are flat.", "So it goes.", "The end."],
]
SPLITS = {"train": TRAIN, "valid": [["The dog sat.", "It did."]], "test": [["A mat."], ["Cats!"]]}
SIZES = {"wordpiece": 100, "bpe": 300}


def prepare(corpus, *, pieces="bpe", lowercase=False):
    corpus = corpus if isinstance(corpus, DocumentCorpus) else Given(corpus)
    size = SIZES[pieces]
    return prepare_documents(corpus, vocab_size=size, pieces=pieces, lowercase=lowercase)


def texts_of(prepared, split):
    data = prepared.splits[split]
    sentences = [prepared.tokenizer.decode(data.text[i]) for i in range(len(data.text))]
    return [sentences[a:b] for a, b in pairwise(data.documents)]


def test_prepared_sentences_decode_to_the_text_of_their_documents():
    prepared = prepare(SPLITS)
    for split, documents in SPLITS.items():
        assert texts_of(prepared, split) == documents
        data = prepared.splits[split]
        assert len(data) == len(documents)
        assert data.characters.tolist() == [len(x) for document in documents for x in document]
        assert len(data.begins) == len(data.text.ids)
        assert data.begins[data.text.offsets[:-1]].all()


def test_the_description_counts_documents_sentences_and_unknown_tokens():
    description = prepare(SPLITS, pieces="wordpiece").description
    assert description["sizes"] == {"train": 3, "valid": 1, "test": 2}
    assert description["sentences"] == {"train": 6, "valid": 2, "test": 2}
    assert description["unknown"] == {"train": 0, "valid": 0, "test": 1}  # "!"
    assert description["repeated_documents"] == {"train": 0, "valid": 0, "test": 0}
    assert description["vocabulary"]["size"] <= 100
    text = "The dog sat.\nIt did.\n"
    assert description["checksums"]["valid"] == hashlib.sha256(text.encode()).hexdigest()
    assert (description["source"], description["licence"]) == ("given", "none")


def test_no_document_is_in_two_splits():
    splits = {
        "train": [["One."], ["Two."], ["Three.", "Four."], ["One."], ["Three."], ["Two."]],
        "valid": [["Two."], ["Five."], ["Six."], ["Five."]],
        "test": [["Six."], ["Seven."]],
        "test_more": [["Seven."], ["Eight."], ["Six."]],
    }
    prepared = prepare(splits)
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


def test_sentences_without_tokens_are_dropped():
    splits = {
        **SPLITS,
        "train": [["The cat sat.", "\u200b", "The end."], ["\x00", "\u200b"], ["A dog."]],
        "valid": [["\u200b", "The dog."]],
    }
    prepared = prepare(splits, pieces="wordpiece")
    assert prepared.description["sizes"] == {"train": 2, "valid": 1, "test": 2}
    assert prepared.description["sentences"]["train"] == 3
    train = prepared.splits["train"]
    assert train.documents.tolist() == [0, 2, 3]
    assert train.characters.tolist() == [12, 8, 6]
    assert (train.text.lengths > 0).all()


def test_the_unicode_normal_form_does_not_change_character_counts():
    sentences = ["Die M\u00fche l\u00f6st \u00dcbel.", "\ud55c\uad6d\uc5b4"]
    counts = []
    for form in ("NFC", "NFD"):
        document = [unicodedata.normalize(form, x) for x in sentences]
        prepared = prepare(Given({**SPLITS, "train": [document, *SPLITS["train"]]}))
        counts.append(prepared.splits["train"].characters.tolist())
    assert counts[0] == counts[1] and counts[0][:2] == [len(x) for x in sentences]


@pytest.mark.parametrize("documents", [[["\u200b"], ["\x00"]], [[" "], [""]]])
def test_a_split_without_any_tokens_is_refused(documents, cache):
    splits = {**SPLITS, "test": documents}
    with pytest.raises(ValueError, match="no sentence of test has any tokens"):
        prepare(splits, pieces="wordpiece")
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_a_second_preparation_reads_the_cache():
    corpus = Given(SPLITS)
    first = prepare(corpus)
    assert prepare(corpus).description == first.description
    assert corpus.reads == 1
    prepare(corpus, lowercase=True)
    assert corpus.reads == 2


@pytest.mark.parametrize("train", [[], SPLITS["valid"]])
def test_a_training_split_that_is_empty_or_only_repeats_documents_is_refused(train):
    with pytest.raises(ValueError, match=r"has no examples in train \(.*add the missing files"):
        prepare({**SPLITS, "train": train})


def test_the_vocabulary_of_a_large_text_is_learned_from_every_kth_document(monkeypatch):
    learned = []
    train = DocumentTokenizer.train

    def seen(sentences, **values):
        learned.extend(sentences)
        return train(sentences, **values)

    monkeypatch.setattr(DocumentTokenizer, "train", seen)
    splits = {**SPLITS, "train": [[f"Word{i} is here."] for i in range(40)]}
    monkeypatch.setattr("normlab.data.prepare_documents.SAMPLE_BYTES", 200)
    monkeypatch.setattr("normlab.data.prepare_documents._DOCUMENTS", 2)
    prepared = prepare(splits)
    assert texts_of(prepared, "train") == splits["train"]
    assert len(learned) == 10
