"""Reading the lines of text files, and the errors for bad text."""

import gzip
import lzma

import pytest

from normlab.data.text_files import read_lines, read_parallel
from normlab.errors import UserError


def write_split(folder, split, source, target):
    (folder / f"{split}.de").write_bytes(source)
    (folder / f"{split}.en").write_bytes(target)


def read(folder, split="train"):
    return read_parallel(folder, split, ("de", "en"))


def test_plain_and_gzipped_text_read_the_same_and_only_line_feeds_end_lines(tmp_path):
    # U+2028, U+0085 and a form feed are line ends to str.splitlines, and would shift the pairing.
    text = "\ufeffGr\u00fc\u00dfe a\u2028b\u0085c\x0cd\r\ne\n".encode()
    (tmp_path / "a.de").write_bytes(text)
    (tmp_path / "b.de.gz").write_bytes(gzip.compress(text))
    assert read_lines(tmp_path / "a.de") == read_lines(tmp_path / "b.de.gz")
    assert read_lines(tmp_path / "a.de") == ["Gr\u00fc\u00dfe a\u2028b\u0085c\x0cd", "e"]


def test_byte_order_marks_and_carriage_returns_at_the_edges_of_lines_are_stripped(tmp_path):
    joined = "\ufeffa\r\r\n\ufeffb\r\nc\ufeffd\n".encode()
    (tmp_path / "a.de").write_bytes(joined)
    assert read_lines(tmp_path / "a.de") == ["a", "b", "c\ufeffd"]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"a\nb\nc\n", b"x\ny\n", r"train\.de has 3 lines and .*train\.en has 2"),
        (b"a\nb\xe4r\nc\n", b"x\ny\nz\n", r"train\.de, line 2 is not UTF-8"),
        (b"", b"", r"train\.de is empty"),
        (b"a\rb\rc\r", b"x\n", r"train\.de has lines that end in CR only; .*mac2unix"),
        ("a\nb\n".encode("utf-16-le"), b"x\ny\n", r"line 1 has NUL .*iconv -f UTF-16LE"),
        ("\na\n".encode("utf-16-le"), b"\nx\n", r"line 2 has NUL .*iconv -f UTF-16LE"),
        ("\na\n".encode("utf-16-be"), b"\nx\n", r"line 1 has NUL .*iconv -f UTF-16BE"),
        ("a\nb\n".encode("utf-16"), b"x\ny\n", r"line 1 is not UTF-8 .*iconv -f UTF-16 -t"),
        (gzip.compress(b"a\n", mtime=0), b"x\n", r"not UTF-8 .*compressed with gzip; add \.gz"),
        (gzip.compress(b"a", mtime=13), b"x\n", r"not UTF-8 .*compressed with gzip; add \.gz"),
        (lzma.compress(b"a\n"), b"x\n", r"not UTF-8 .*compressed with xz; unpack it"),
    ],
)
def test_bad_text_raises_an_error_that_says_where_and_what_is_wrong(
    tmp_path, source, target, message
):
    write_split(tmp_path, "train", source, target)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_damaged_gzip_and_text_beyond_the_size_limit_raise_an_error(tmp_path, monkeypatch):
    (tmp_path / "train.de.gz").write_bytes(b"a\n")
    with pytest.raises(ValueError, match=r"cannot read .*train\.de\.gz"):
        read_lines(tmp_path / "train.de.gz")
    monkeypatch.setattr("normlab.data.text_files.MAX_BYTES", 3)
    (tmp_path / "a.de").write_bytes(b"a\nb\n")
    with pytest.raises(ValueError, match="unpacks to more than 3 bytes"):
        read_lines(tmp_path / "a.de")


def test_the_error_for_a_missing_split_lists_both_possible_files(tmp_path):
    write_split(tmp_path, "train", b"a\n", b"x\n")
    with pytest.raises(ValueError, match=r"neither valid\.de nor valid\.de\.gz"):
        read(tmp_path, "valid")


def test_a_file_next_to_its_gzipped_version_is_refused(tmp_path):
    write_split(tmp_path, "train", b"a\n", b"x\n")
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(b"b\n"))
    with pytest.raises(UserError, match=r"has both train\.de and train\.de\.gz; keep one"):
        read(tmp_path)
