"""Python's documentation as documents: sentences without code or repeats."""

from normlab.data import python_docs as builtin
from normlab.data.python_docs import PydocCorpus, is_sentence, prose
from tests.data.splits_of_documents import splits_of


def test_pydoc_has_text_and_no_code_in_every_split(monkeypatch):
    modules = dict(list(builtin._sources().items())[::40])
    monkeypatch.setattr(builtin, "_sources", lambda: modules)
    found = splits_of(PydocCorpus())
    sizes = {split: sum(map(len, documents)) for split, documents in found.items()}
    assert sum(sizes.values()) > 500 and min(sizes.values()) > 10
    code = (">>>", "...", "==", "::", "->", "{", "}", "[", "]", "`", "\\", "|", "import *")
    sentences = [x for documents in found.values() for document in documents for x in document]
    assert [x for x in sentences if any(mark in x for mark in code)] == []
    assert all(is_sentence(sentence) for sentence in sentences)


def test_pydoc_drops_paragraphs_that_an_earlier_document_contains(monkeypatch):
    shared = "This paragraph occurs in both. It has two sentences."
    texts = [("a", [f"The first is here.\n\n{shared}"]), ("b", [shared, "The last one is here."])]
    monkeypatch.setattr(builtin, "_texts", lambda: iter([*texts, ("c", [shared])]))
    found = [tuple(document) for _, document in PydocCorpus().documents()]
    assert found == [
        ("The first is here.", "This paragraph occurs in both.", "It has two sentences."),
        ("The last one is here.",),
    ]


DOCSTRING = """Return the *first* item of ``items`` or nothing.

A block that is an example follows::

    This looks like a sentence.

It is over here, says :meth:`close`.
- The first point is this one.
  It has a second line. And a second sentence.

>>> This is not text.
Nor is this line here.

Too short.
a = Something that assigns is code.
NOTE
"""


def test_prose_extracts_the_sentences_of_a_docstring():
    assert list(prose(DOCSTRING)) == [
        ["Return the first item of items or nothing."],
        ["It is over here, says close."],
        ["The first point is this one.", "It has a second line.", "And a second sentence."],
    ]
