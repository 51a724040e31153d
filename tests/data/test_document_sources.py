"""The sources of documents: what each yields, leaves out and refuses."""

import csv
import gzip
from unittest.mock import Mock

import datasets
import pytest

from normlab.data import python_docs as builtin
from normlab.data.documents import FolderDocuments, HubDocuments, split_sentences
from normlab.data.python_docs import PydocCorpus, is_sentence, prose


def splits_of(corpus):
    """Return the documents of each split."""
    found = {}
    for split, document in corpus.documents():
        found.setdefault(split, []).append(tuple(document))
    return found


# --- the documentation of Python ---


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


def test_split_sentences_keeps_all_text():
    text = "Dr. Smith came.  He saw os.Path!\nWas it 3.5 metres? Yes, \u201cit was.\u201d So."
    for language in ("en", "de", "zh", "xx"):
        pieces = split_sentences(text, language=language)
        assert " ".join(pieces) == " ".join(text.split())
    assert split_sentences(text, language="en")[:2] == ["Dr. Smith came.", "He saw os.Path!"]
    assert split_sentences(" \n ", language="en") == []


# --- the user's own files ---


def folder_documents(place, **values):
    defaults = {
        "form": "sentences",
        "boundary": "blank_line",
        "language": "en",
        "valid_share": 0.1,
        "test_share": 0.1,
    }
    return FolderDocuments(data_dir=place and str(place), **{**defaults, **values})


def write_splits(folder):
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(f"{split} one.\n{split} two.\n\n\n{split} three.\n")


def test_a_folder_with_splits_has_documents_separated_by_blank_lines(tmp_path):
    write_splits(tmp_path)
    splits = splits_of(folder_documents(tmp_path))
    assert list(splits) == ["test", "valid", "train"]
    assert splits["valid"] == [("valid one.", "valid two."), ("valid three.",)]


@pytest.mark.parametrize("name", ["all.txt", "all.txt.gz", "anything"])
def test_a_single_file_is_split_by_document(tmp_path, name):
    data = "\n".join(f"Document {i}.\nIts end {i}.\n" for i in range(60)).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    corpus = folder_documents(tmp_path / name)
    splits = splits_of(corpus)
    assert set(splits) == {"train", "valid", "test"}
    found = sorted(x for documents in splits.values() for x in documents)
    assert found == sorted((f"Document {i}.", f"Its end {i}.") for i in range(60))
    assert corpus.label == name.split(".")[0]


def test_paragraphs_are_split_into_sentences(tmp_path):
    (tmp_path / "train.txt").write_text("It is so. It was\nnot so. Was it?\n\nNew. One.\n")
    for split in ("valid", "test"):
        (tmp_path / f"{split}.txt").write_text("One. Two.\n")
    lines = splits_of(folder_documents(tmp_path, form="paragraphs"))["train"]
    assert lines == [("It is so.", "It was", "not so.", "Was it?"), ("New.", "One.")]
    files = splits_of(folder_documents(tmp_path, form="paragraphs", boundary="file"))["train"]
    assert files == [("It is so.", "It was not so.", "Was it?", "New.", "One.")]


def test_the_key_of_a_folder_depends_on_content_and_settings_but_not_on_the_path(tmp_path):
    one, two = tmp_path / "one" / "text", tmp_path / "two" / "text"
    for folder in (one, two):
        folder.mkdir(parents=True)
        write_splits(folder)
    key = folder_documents(one).key()
    assert folder_documents(two).key() == key
    assert folder_documents(one, form="paragraphs").key() != key
    text = (two / "test.txt").read_text()
    (two / "test.txt").write_text(text.replace("one", "One"))
    assert folder_documents(two).key() != key


def test_equivalent_language_codes_split_paragraphs_the_same_way(tmp_path):
    text = "\u6211\u559c\u6b22\u3002\u4f60\u597d\u5417\uff1f\u597d\u3002"
    (tmp_path / "a.txt").write_text(f"{text}\n\nOne. Two.\n", "utf-8")
    found = [
        [*folder_documents(tmp_path, form="paragraphs", language=code).documents()]
        for code in ("zh", "cmn", "zho_Hans")
    ]
    assert found[0] == found[1] == found[2]
    with pytest.raises(ValueError, match=r"task\.corpus\.language=cn .*Did you mean zh\?"):
        folder_documents(tmp_path, language="cn")


def test_missing_files_of_a_folder_raise_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"set data_dir to a file, .* with train\.txt"):
        folder_documents(None)
    with pytest.raises(ValueError, match=r"absent does not exist; set data_dir"):
        splits_of(folder_documents(tmp_path / "absent"))
    (tmp_path / "table.csv").write_text("a")
    with pytest.raises(ValueError, match=r"no \.txt or \.txt\.gz file; set"):
        splits_of(folder_documents(tmp_path))
    (tmp_path / "valid.txt").write_text("a")
    with pytest.raises(ValueError, match=r"has no train\.txt; set data_dir"):
        splits_of(folder_documents(tmp_path))


@pytest.mark.parametrize("name", ["dev.txt", "notes.txt", "more/a.TXT", "train/b.txt"])
def test_a_text_file_next_to_the_splits_that_would_not_be_read_is_refused(tmp_path, name):
    write_splits(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("Not read.\n")
    with pytest.raises(ValueError, match=rf"1 files that would not be read \({name}\): call them"):
        splits_of(folder_documents(tmp_path))


def test_all_visible_text_files_of_a_folder_are_read_and_hidden_ones_are_skipped(tmp_path):
    folder = tmp_path / "text"
    for place in (folder / "b", folder / ".git"):
        place.mkdir(parents=True)
    shown = ["a.txt", "B.TXT", "b/a.txt", "b/c.Txt.gz"]
    for name in [*shown, "._a.txt", ".x.txt", ".#a.txt", ".git/y.txt", "a.csv"]:
        data = f"Text of {name}.\n".encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    splits = splits_of(folder_documents(folder, valid_share=0.3, test_share=0.3))
    found = sorted(x for documents in splits.values() for (x,) in documents)
    assert found == sorted(f"Text of {name}." for name in shown)
    (folder / "linked").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="linked is a link to a folder, which is not followed"):
        splits_of(folder_documents(folder))


@pytest.mark.parametrize("other", ["a.txt.gz", "a.TXT"])
def test_two_files_that_differ_only_in_extension_or_case_are_refused(tmp_path, other):
    for name in ("a.txt", other):
        (tmp_path / name).write_bytes(gzip.compress(b"A.\n") if name[-1] == "z" else b"B.\n")
    with pytest.raises(ValueError, match=r"has both a\.\S+ and a\.\S+: keep one"):
        splits_of(folder_documents(tmp_path))


def test_the_brown_corpus_has_the_documents_of_its_own_list(normlab_data):
    brown = normlab_data / "brown"
    found = [len(document) for _, document in folder_documents(brown).documents()]
    with gzip.open(brown / "brown.docs.tsv.gz", "rt") as file:
        listed = [int(row["sentences"]) for row in csv.DictReader(file, delimiter="\t")]
    assert found == listed
    assert (len(listed), sum(listed)) == (500, 57_340)


# --- tables of the hub ---


class Hub:
    """A folder of tables, and the corpus that reads it."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def __call__(self, **values):
        defaults = {"path": "owner/text", "config": None, "rows": "documents", "column": "text"}
        defaults |= {"form": "sentences", "language": "en", "licence": "CC0", "name": "tables"}
        defaults |= {"valid_share": 0.2, "test_share": 0.2, "data_dir": str(self.folder)}
        return HubDocuments(**{**defaults, **values})

    def write(self, rows, *splits):
        for split in splits or ("train", "validation", "test"):
            table = datasets.Dataset.from_dict({"text": rows})
            table.to_parquet(self.folder / f"{split}.parquet")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    return Hub(tmp_path / "tables")


def test_each_row_of_a_table_is_one_document(hub):
    hub.write(["One.\nTwo.\n\nThree.", None, "Four. Five."])
    found = splits_of(hub())
    assert set(found) == {"train", "valid", "test"}
    assert found["train"] == [("One.", "Two.", "Three."), ("Four. Five.",)]
    cut = splits_of(hub(form="paragraphs"))["valid"]
    assert cut == [("One.", "Two.", "Three."), ("Four.", "Five.")]


WIKITEXT = [
    "",
    " = First Article = \n",
    "",
    " It is text . It goes on . \n",
    " = x = \n",  # a line of an equation: no blank line before it
    "",
    " = = Section = = \n",
    "",
    " More text . \n",
    "",
    " = B = \n",
    "",
    " The second . \n",
]


def test_wikitext_headings_begin_articles(hub):
    hub.write(WIKITEXT)
    first, second = splits_of(hub(rows="articles"))["train"]
    text = ("It is text . It goes on .", "= x =", "= = Section = =", "More text .")
    assert first == ("= First Article =", *text)
    assert second == ("= B =", "The second .")
    cut = splits_of(hub(rows="articles", form="paragraphs"))["train"][0]
    assert cut[:3] == ("= First Article =", "It is text .", "It goes on .")


@pytest.mark.parametrize("missing", [["validation"], ["test"], ["validation", "test"]])
def test_missing_splits_are_held_out_from_the_training_split(hub, missing):
    rows = [f"Row {i}." for i in range(80)]
    hub.write([*rows, *rows[:5]], "train")
    for split in {"validation", "test"} - set(missing):
        hub.write(["Given."], split)
    found = splits_of(hub())
    texts = {split: {x for (x,) in documents} for split, documents in found.items()}
    names = {"validation": "valid", "test": "test"}
    for split in names:
        assert (texts[names[split]] == {"Given."}) == (split not in missing)
    parts = [texts["train"], *(texts[names[split]] for split in missing)]
    assert set.union(*parts) == set(rows)
    assert sum(map(len, parts)) == 80  # equal documents are held out together
    assert all(len(part) > 5 for part in parts)


def test_the_key_of_tables_depends_on_content_and_settings(hub):
    hub.write(["One.", "", "Two."])
    key = hub().key()
    assert hub(valid_share=0.1).key() != key
    hub.write(["One.", "Other."], "test")
    assert hub().key() != key


def test_unreadable_tables_raise_an_error_that_says_what_to_do(hub, monkeypatch):
    hub.write(["One."])
    with pytest.raises(ValueError, match=r"task\.corpus\.column=body; it has train \(\['text'\]\)"):
        splits_of(hub(column="body"))
    (hub.folder / "train.parquet").write_text("damaged")
    with pytest.raises(ValueError, match=r"cannot load the data set .*tables \("):
        splits_of(hub())
    offline = Mock(side_effect=ConnectionError("OfflineModeIsEnabled"))
    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(ValueError, match=r"OfflineModeIsEnabled.*data_dir=FOLDER.*corpus=pydoc"):
        splits_of(hub(data_dir=None))
