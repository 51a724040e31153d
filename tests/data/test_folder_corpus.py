"""The user's own parallel text: its splits, and its cache key."""

import pytest

from normlab.data.folder_corpus import FolderCorpus


def write_split(folder, split, source, target):
    (folder / f"{split}.de").write_bytes(source)
    (folder / f"{split}.en").write_bytes(target)


def folder_corpus(folder, form="raw"):
    codes = {"source_language": "de", "target_language": "en"}
    return FolderCorpus(data_dir=folder and str(folder), **codes, form=form)


def write_corpus(folder):
    folder.mkdir(exist_ok=True)
    for split in ("train", "valid", "test"):
        write_split(folder, split, f"{split} a\nb\n".encode(), b"x\ny\n")


def test_a_folder_corpus_reads_three_splits_and_refuses_missing_ones(tmp_path):
    write_corpus(tmp_path)
    splits = folder_corpus(tmp_path).splits
    assert list(splits) == ["train", "valid", "test"]
    assert splits["test"].source == ["test a", "b"]
    (tmp_path / "valid.en").unlink()
    with pytest.raises(ValueError, match=r"valid\.en"):
        folder_corpus(tmp_path).read()
    with pytest.raises(ValueError, match="set data_dir=FOLDER"):
        folder_corpus(None)


def test_the_cache_key_depends_on_content_and_form_but_not_on_the_path(tmp_path):
    one, two = tmp_path / "one" / "text", tmp_path / "two" / "text"
    for folder in (one, two):
        folder.parent.mkdir()
        write_corpus(folder)
    key = folder_corpus(one).key()
    assert folder_corpus(two).key() == key
    write_split(two, "test", b"c\nb\n", b"x\ny\n")
    assert folder_corpus(two).key() != key
    assert folder_corpus(one, form="tokenized").key() != key
