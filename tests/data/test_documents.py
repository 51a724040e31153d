"""Folders and files of documents: what they yield and refuse."""

import csv
import gzip

import pytest

from normlab.data.documents import FolderDocuments, split_sentences
from tests.data.splits_of_documents import splits_of


def test_split_sentences_keeps_all_text():
    text = "Dr. Smith came.  He saw os.Path!\nWas it 3.5 metres? Yes, \u201cit was.\u201d So."
    for language in ("en", "de", "zh", "xx"):
        pieces = split_sentences(text, language=language)
        assert " ".join(pieces) == " ".join(text.split())
    assert split_sentences(text, language="en")[:2] == ["Dr. Smith came.", "He saw os.Path!"]
    assert split_sentences(" \n ", language="en") == []


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
    with pytest.raises(
        ValueError, match=rf"1 files that would not be read \({name}\); rename them"
    ):
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
    with pytest.raises(ValueError, match=r"has both a\.\S+ and a\.\S+; keep one"):
        splits_of(folder_documents(tmp_path))


def test_the_brown_corpus_has_the_documents_of_its_own_list(normlab_data):
    brown = normlab_data / "brown"
    found = [len(document) for _, document in folder_documents(brown).documents()]
    with gzip.open(brown / "brown.docs.tsv.gz", "rt") as file:
        listed = [int(row["sentences"]) for row in csv.DictReader(file, delimiter="\t")]
    assert found == listed
    assert (len(listed), sum(listed)) == (500, 57_340)
