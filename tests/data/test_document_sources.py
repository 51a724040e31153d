"""Where documents come from: what each source gives, refuses and leaves out."""

import csv
import gzip
import json
import sys
from collections import Counter

import pytest

from normlab.data import pydoc as builtin
from normlab.data.documents import (
    Document,
    FolderDocuments,
    split_by_hash,
    split_sentences,
)
from normlab.data.pydoc import PydocCorpus, is_sentence, prose
from normlab.data.tables import HubDocuments


def sentences_of(documents):
    return [document.sentences for document in documents]


# --- the documentation that every Python carries ---


@pytest.fixture(scope="module")
def pydoc():
    return PydocCorpus()


def test_pydoc_has_enough_text_in_every_split(pydoc):
    sizes = {split: sum(map(len, found)) for split, found in pydoc.splits().items()}
    # 13,237, 1,205 and 1,342 for Python 3.11.7; less where a distribution leaves modules out.
    assert sum(sizes.values()) > 12_000
    assert min(sizes.values()) > 500
    assert sizes["train"] > 9_000


def test_pydoc_leaves_out_a_paragraph_that_an_earlier_document_has(monkeypatch):
    shared = "This paragraph stands in both. It has two sentences."
    texts = [("a", [f"The first is here.\n\n{shared}"]), ("b", [shared, "The last one is here."])]
    monkeypatch.setattr(builtin, "_texts", lambda: iter([*texts, ("c", [shared])]))
    corpus = PydocCorpus()
    found = {x.origin: x.sentences for documents in corpus.splits().values() for x in documents}
    assert found["b"] == ("The last one is here.",)
    assert set(found) == {"a", "b"}
    assert corpus.left_out()["repeated_paragraph"] == 2


def test_pydoc_has_no_code(pydoc):
    code = (">>>", "...", "==", "::", "->", "{", "}", "[", "]", "`", "\\", "|", "import *")
    sentences = [x for found in pydoc.splits().values() for doc in found for x in doc.sentences]
    assert [x for x in sentences if any(mark in x for mark in code)] == []
    assert all(is_sentence(sentence) for sentence in sentences)


def test_pydoc_says_what_it_is(pydoc):
    description = pydoc.describe()
    assert description["licence"] == "Python Software Foundation License Version 2"
    assert description["label"] == f"documentation of Python {sys.version.split()[0]}"
    assert set(description["left_out"]) == {"code_block", "not_a_sentence", "repeated_paragraph"}
    assert description["valid_share"] == 0.1


@pytest.mark.parametrize("shares", [(0.0, 0.1), (0.1, 0.0), (0.5, 0.5)])
def test_shares_that_leave_nothing_are_refused(shares):
    valid, test = shares
    with pytest.raises(ValueError, match="must be above 0 and sum to less than 1"):
        split_by_hash("a", valid_share=valid, test_share=test)


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


def test_prose_by_hand():
    counts = Counter()
    assert prose(DOCSTRING, counts) == [
        ["Return the first item of items or nothing."],
        ["It is over here, says close."],
        ["The first point is this one.", "It has a second line.", "And a second sentence."],
    ]
    assert counts["code_block"] == 2
    assert counts["not_a_sentence"] >= 3


def test_split_sentences_keeps_all_text():
    text = "Dr. Smith came.  He saw os.Path!\nWas it 3.5 metres? Yes, \u201cit was.\u201d So."
    for language in ("en", "de", "zh", "xx"):
        pieces = split_sentences(text, language=language)
        assert " ".join(pieces) == " ".join(text.split())
    assert split_sentences(text, language="en")[:2] == ["Dr. Smith came.", "He saw os.Path!"]
    assert split_sentences(" \n ", language="en") == []


# --- files of the user's own ---


def folder_documents(place, **values):
    defaults = dict(
        form="sentences", boundary="blank_line", language="en", valid_share=0.1, test_share=0.1
    )
    return FolderDocuments(place and str(place), **{**defaults, **values})


def write_splits(folder):
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(f"{split} one.\n{split} two.\n\n\n{split} three.\n")


def many(count=60):
    return "\n".join(f"Document {i}.\nIts end {i}.\n" for i in range(count))


def test_folder_with_splits(tmp_path):
    write_splits(tmp_path)
    (tmp_path / "test_news.txt").write_text("news.\n")
    (tmp_path / "notes.txt").write_text("not read\n")
    splits = folder_documents(tmp_path).splits()
    assert list(splits) == ["train", "valid", "test", "test_news"]
    assert splits["valid"] == [
        Document("valid.txt, line 1", ("valid one.", "valid two.")),
        Document("valid.txt, line 5", ("valid three.",)),
    ]
    assert sentences_of(splits["test_news"]) == [("news.",)]


@pytest.mark.parametrize("name", ["all.txt", "all.txt.gz", "anything"])
def test_one_file_is_split_by_document(tmp_path, name):
    data = many().encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    corpus = folder_documents(tmp_path / name)
    splits = corpus.splits()
    assert list(splits) == ["train", "valid", "test"]
    assert min(map(len, splits.values())) > 0
    found = sorted(x for documents in splits.values() for x in sentences_of(documents))
    assert found == sorted((f"Document {i}.", f"Its end {i}.") for i in range(60))
    assert corpus.label == name.split(".")[0]
    assert corpus.describe()["split_by"] == "hash of the text"


def test_paragraphs_are_cut_into_sentences(tmp_path):
    (tmp_path / "train.txt").write_text("It is so. It was\nnot so. Was it?\n\nNew. One.\n")
    for split in ("valid", "test"):
        (tmp_path / f"{split}.txt").write_text("One. Two.\n")
    lines = folder_documents(tmp_path, form="paragraphs").splits()["train"]
    assert sentences_of(lines) == [("It is so.", "It was", "not so.", "Was it?"), ("New.", "One.")]
    files = folder_documents(tmp_path, form="paragraphs", boundary="file").splits()["train"]
    assert sentences_of(files) == [("It is so.", "It was not so.", "Was it?", "New.", "One.")]


def test_folder_key_follows_content_and_settings_and_not_place(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        write_splits(folder)
    key = folder_documents(one).key()
    assert folder_documents(two).key() == key
    for changed in (dict(form="paragraphs"), dict(boundary="file"), dict(test_share=0.2)):
        assert folder_documents(one, **changed).key() != key
    text = (two / "test.txt").read_text()
    (two / "test.txt").write_text(text.replace("one", "One"))
    assert folder_documents(two).key() != key


def test_no_data_dir_says_to_set_it(tmp_path):
    with pytest.raises(ValueError, match=r"set data_dir to a folder with train\.txt"):
        folder_documents(None)
    with pytest.raises(ValueError, match=r"no file or folder .*absent; set data_dir"):
        folder_documents(tmp_path / "absent").splits()


def test_a_folder_without_text_says_what_it_holds(tmp_path):
    (tmp_path / "table.csv").write_text("a")
    with pytest.raises(ValueError, match=r"no \.txt or \.txt\.gz file; it holds table\.csv\. Set"):
        folder_documents(tmp_path).splits()


def test_a_missing_split_is_named(tmp_path):
    write_splits(tmp_path)
    (tmp_path / "valid.txt").unlink()
    with pytest.raises(ValueError, match=r"neither valid\.txt nor valid\.txt\.gz; add"):
        folder_documents(tmp_path).splits()


def test_text_without_a_boundary_says_how_to_set_one(tmp_path):
    (tmp_path / "a.txt").write_text("One.\nTwo.\nThree.\n")
    with pytest.raises(ValueError, match=r"1 document.*put a blank line between documents"):
        folder_documents(tmp_path / "a.txt").splits()


@pytest.mark.parametrize("boundary", ["blank_line", "file"])
@pytest.mark.parametrize("text", ["", " \n\t\n\n"])
def test_a_blank_file_is_named(tmp_path, text, boundary):
    write_splits(tmp_path)
    (tmp_path / "test.txt").write_text(text)
    with pytest.raises(ValueError, match=r"test\.txt (is empty; give|holds no sentence.*give)"):
        folder_documents(tmp_path, boundary=boundary).splits()


def test_brown_by_its_own_list(normlab_data):
    brown = normlab_data / "brown"
    splits = folder_documents(brown).splits()
    found = [document for documents in splits.values() for document in documents]
    found.sort(key=lambda document: int(document.origin.rsplit(" ", 1)[1]))
    with gzip.open(brown / "brown.docs.tsv.gz", "rt") as file:
        listed = [int(row["sentences"]) for row in csv.DictReader(file, delimiter="\t")]
    assert list(map(len, found)) == listed
    assert (len(listed), sum(listed)) == (500, 57_340)


# --- tables of the hub ---


@pytest.fixture
def hub(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    folder = tmp_path / "tables"
    folder.mkdir()

    def corpus(data_dir=str(folder), **values):
        defaults = dict(
            path="owner/text",
            config=None,
            rows="documents",
            column="text",
            form="sentences",
            language="en",
            licence="CC0",
            name="tables",
            valid_share=0.2,
            test_share=0.2,
            max_documents=None,
        )
        return HubDocuments(data_dir, **{**defaults, **values})

    def write(split, rows, *, column="text", kind="jsonl"):
        if kind == "parquet":
            datasets.Dataset.from_dict({column: rows}).to_parquet(folder / f"{split}.parquet")
        else:
            lines = "".join(json.dumps({column: row}) + "\n" for row in rows)
            (folder / f"{split}.jsonl").write_text(lines)

    corpus.write = write
    corpus.folder = folder
    return corpus


def write_all(hub, rows, **options):
    for split in ("train", "validation", "test"):
        hub.write(split, rows, **options)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_that_are_documents(hub, kind):
    write_all(hub, ["One.\nTwo.\n\nThree.", None, "Four. Five."], kind=kind)
    corpus = hub()
    assert list(corpus.splits()) == ["train", "valid", "test"]
    assert corpus.splits()["train"] == [
        Document("owner/text:train, row 0", ("One.", "Two.", "Three.")),
        Document("owner/text:train, row 2", ("Four. Five.",)),
    ]
    assert corpus.left_out() == {"empty_rows": 3}
    cut = hub(form="paragraphs").splits()["valid"]
    assert sentences_of(cut) == [("One.", "Two.", "Three."), ("Four.", "Five.")]


def test_rows_that_are_lines(hub):
    write_all(hub, ["", "One.", "Two. Three.", " \n", "", "Four."])
    assert hub(rows="lines").splits()["test"] == [
        Document("owner/text:test, line 2", ("One.", "Two. Three.")),
        Document("owner/text:test, line 6", ("Four.",)),
    ]
    cut = hub(rows="lines", form="paragraphs").splits()["test"]
    assert sentences_of(cut) == [("One.", "Two.", "Three."), ("Four.",)]


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
    write_all(hub, WIKITEXT, kind="parquet")
    first, second = hub(rows="articles").splits()["train"]
    assert first == Document(
        "owner/text:train, First Article",
        (
            "= First Article =",
            "It is text . It goes on .",
            "= x =",
            "= = Section = =",
            "More text .",
        ),
    )
    assert second == Document("owner/text:train, B", ("= B =", "The second ."))
    cut = hub(rows="articles", form="paragraphs").splits()["train"][0]
    assert cut.sentences[:3] == ("= First Article =", "It is text .", "It goes on .")


@pytest.mark.parametrize(
    ("rows", "column", "kind"), [(["One."], "body", "string"), ([1, 2], "text", "int64")]
)
def test_a_column_without_text_is_named_with_the_others(hub, rows, column, kind):
    write_all(hub, rows, column=column)
    said = rf"no text in task\.corpus\.column=text; its columns are {column} \({kind}\)"
    with pytest.raises(ValueError, match=said):
        hub().splits()


@pytest.mark.parametrize("missing", [["validation"], ["test"], ["validation", "test"]])
def test_missing_rows_are_held_out_of_train(hub, missing):
    rows = [f"Row {i}." for i in range(80)]
    hub.write("train", [*rows, *rows[:5]])
    for split in {"validation", "test"} - set(missing):
        hub.write(split, ["Given."])
    splits = hub().splits()
    texts = {split: {x for (x,) in sentences_of(found)} for split, found in splits.items()}
    names = {"validation": "valid", "test": "test"}
    for split in names:
        assert (texts[names[split]] == {"Given."}) == (split not in missing)
    parts = [texts["train"], *(texts[names[split]] for split in missing)]
    assert set.union(*parts) == set(rows)
    assert sum(map(len, parts)) == 80  # equal documents are held out together
    assert all(len(part) > 5 for part in parts)


def test_max_documents_keeps_the_first_of_each_split(hub):
    write_all(hub, ["One.", "", "Two.", "Three."])
    corpus = hub(max_documents=2)
    assert [sentences_of(found) for found in corpus.splits().values()] == [
        [("One.",), ("Two.",)]
    ] * 3
    assert corpus.key() != hub().key()
    assert hub(max_documents=9).splits() == hub().splits()


def test_hub_key_follows_content_and_settings(hub):
    write_all(hub, ["One.", "Two."])
    key = hub().key()
    assert hub().key() == key
    for changed in (dict(rows="lines"), dict(form="paragraphs"), dict(valid_share=0.3)):
        assert hub(**changed).key() != key
    hub.write("test", ["One.", "Other."])
    assert hub().key() != key


def test_a_folder_may_hold_a_folder_of_the_config(hub, tmp_path):
    with pytest.raises(ValueError, match=r"no \.parquet or \.jsonl file; set data_dir"):
        hub().splits()
    write_all(hub, ["One."])
    hub.folder.rename(tmp_path / "raw-v1")
    assert sentences_of(hub(str(tmp_path), config="raw-v1").splits()["test"]) == [("One.",)]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_damaged_tables_are_named(hub, kind):
    (hub.folder / f"train.{kind}").write_text("{damaged\n")
    with pytest.raises(ValueError, match=r"cannot read the tables in .*download"):
        hub().splits()


def test_an_unavailable_hub_says_what_to_do(hub, monkeypatch):
    import datasets

    def offline(*args, **kwargs):
        raise ConnectionError("Couldn't reach 'owner/text' on the Hub (OfflineModeIsEnabled)")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(ValueError, match=r"OfflineModeIsEnabled.*data_dir=FOLDER.*corpus=pydoc"):
        hub(None).splits()
