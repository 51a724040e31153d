"""Reading parallel text: what is refused, and what the message names."""

import gzip
import hashlib
import subprocess

import pytest

from normlab.data.corpus import FolderCorpus, ParallelText, read_lines, read_parallel


def write_split(folder, split, source, target):
    (folder / f"{split}.de").write_bytes(source)
    (folder / f"{split}.en").write_bytes(target)


def read(folder, split="train", **options):
    return read_parallel(folder, split, "de", "en", **options)


def test_plain_and_gzip_read_alike(tmp_path):
    text = "Gr\u00fc\u00dfe .\nzwei\n".encode()
    (tmp_path / "a.de").write_bytes(text)
    (tmp_path / "b.de.gz").write_bytes(gzip.compress(text))
    assert read_lines(tmp_path / "a.de") == read_lines(tmp_path / "b.de.gz")
    assert read_lines(tmp_path / "a.de") == ["Gr\u00fc\u00dfe .", "zwei"]


def test_only_line_feeds_end_lines(tmp_path):
    # U+2028, U+0085 and a form feed are line ends to str.splitlines, and would shift the pairing.
    write_split(tmp_path, "train", "a\u2028b\u0085c\x0cd\r\ne".encode(), b"x\ny\n")
    assert read(tmp_path).source == ["a\u2028b\u0085c\x0cd", "e"]


def test_unequal_length_names_both_files_and_counts(tmp_path):
    write_split(tmp_path, "train", b"a\nb\nc\n", b"x\ny\n")
    with pytest.raises(ValueError, match=r"train\.de has 3 lines and .*train\.en has 2"):
        read(tmp_path)


def test_empty_line_names_file_and_line(tmp_path):
    write_split(tmp_path, "train", b"a\nb\nc\n", b"x\n \nz\n")
    with pytest.raises(ValueError, match=r"train\.en, line 2: the line is empty"):
        read(tmp_path)


def test_empty_lines_can_be_dropped_and_are_counted(tmp_path):
    write_split(tmp_path, "train", b"a\nb\n\nd\n", b"x\n\nz\nw\n")
    text = read(tmp_path, empty_lines="drop")
    assert (text.source, text.target, text.dropped) == (["a", "d"], ["x", "w"], 2)


def test_nothing_left_after_dropping_is_an_error(tmp_path):
    write_split(tmp_path, "train", b"a\n\n", b"\nx\n")
    with pytest.raises(ValueError, match="every pair has an empty side"):
        read(tmp_path, empty_lines="drop")


def test_bad_utf8_names_file_and_line(tmp_path):
    write_split(tmp_path, "train", b"a\nb\xe4r\nc\n", b"x\ny\nz\n")
    with pytest.raises(ValueError, match=r"train\.de, line 2: not UTF-8"):
        read(tmp_path)


def test_byte_order_mark_is_not_text(tmp_path):
    write_split(tmp_path, "train", b"\xef\xbb\xbfa\n", b"x\n")
    assert read(tmp_path).source == ["a"]


def test_empty_file_is_named(tmp_path):
    write_split(tmp_path, "train", b"", b"")
    with pytest.raises(ValueError, match=r"train\.de is empty"):
        read(tmp_path)


def test_damaged_gzip_is_named(tmp_path):
    write_split(tmp_path, "train", b"a\n", b"x\n")
    (tmp_path / "train.de").rename(tmp_path / "train.de.gz")
    with pytest.raises(ValueError, match=r"cannot read .*train\.de\.gz"):
        read(tmp_path)


def test_missing_file_lists_what_there_is(tmp_path):
    write_split(tmp_path, "train", b"a\n", b"x\n")
    with pytest.raises(
        ValueError, match=r"neither valid\.de nor valid\.de\.gz; it holds train\.de"
    ):
        read(tmp_path, "valid")
    with pytest.raises(ValueError, match="set data_dir"):
        read(tmp_path / "absent")


def test_checksums_are_those_of_sha256sum(tmp_path):
    write_split(tmp_path, "train", "\u00e4\nb\n".encode(), b"x\ny\n")
    printed = subprocess.run(
        ["sha256sum", tmp_path / "train.de"], capture_output=True, text=True, check=True
    ).stdout
    source, target = read(tmp_path).checksums()
    assert source == printed.split()[0]
    assert target == hashlib.sha256(b"x\ny\n").hexdigest()


def test_a_line_break_inside_a_sentence_is_refused():
    text = ParallelText(["a", "b\nc"], ["x", "y"], origins=("rows:de", "rows:en"))
    with pytest.raises(ValueError, match=r"rows:de, sentence 2: a line break"):
        text.checked()


def folder_corpus(folder, **values):
    defaults = dict(
        source_language="de", target_language="en", form="raw", infix="", empty_lines="error"
    )
    return FolderCorpus(str(folder), **{**defaults, **values})


def write_corpus(folder, infix=""):
    for split in ("train", "valid", "test", "test_news"):
        write_split(folder, f"{split}{infix}", f"{split} a\nb\n".encode(), b"x\ny\n")


def test_folder_corpus_finds_further_tests_and_infix(tmp_path):
    write_corpus(tmp_path, infix=".tok")
    corpus = folder_corpus(tmp_path, infix=".tok", form="tokenized")
    assert list(corpus.splits()) == ["train", "valid", "test", "test_news"]
    assert corpus.splits()["test_news"].source == ["test_news a", "b"]


def test_folder_corpus_drops_only_in_training(tmp_path):
    write_corpus(tmp_path)
    write_split(tmp_path, "train", b"a\n\n", b"x\ny\n")
    corpus = folder_corpus(tmp_path, empty_lines="drop")
    assert corpus.describe()["dropped_empty"]["train"] == 1
    write_split(tmp_path, "valid", b"a\n\n", b"x\ny\n")
    with pytest.raises(ValueError, match=r"valid\.de, line 2"):
        folder_corpus(tmp_path, empty_lines="drop").splits()


def test_folder_corpus_missing_split_is_named(tmp_path):
    write_corpus(tmp_path)
    (tmp_path / "valid.en").unlink()
    with pytest.raises(ValueError, match=r"valid\.en"):
        folder_corpus(tmp_path).splits()


def test_folder_corpus_needs_a_folder():
    with pytest.raises(ValueError, match="set data_dir=FOLDER"):
        FolderCorpus(
            None,
            source_language="de",
            target_language="en",
            form="raw",
            infix="",
            empty_lines="error",
        )


def test_key_follows_content_and_not_place(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        write_corpus(folder)
    key = folder_corpus(one).key()
    assert folder_corpus(two).key() == key
    write_split(two, "test", b"c\nb\n", b"x\ny\n")
    assert folder_corpus(two).key() != key
    assert folder_corpus(one, form="tokenized").key() != key


def test_description_names_files_without_their_folders(tmp_path):
    write_corpus(tmp_path)
    description = folder_corpus(tmp_path).describe()
    assert description["files"]["train"] == ["train.de", "train.en"]
    assert str(tmp_path) not in str(description)
