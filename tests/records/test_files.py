"""A file is complete or absent, whatever goes wrong while it is written."""

import errno
import os
import threading

import pytest

from normlab.records.files import atomic_write


def test_text_is_utf8_with_lf_and_bytes_are_kept(tmp_path):
    with atomic_write(tmp_path / "a.txt") as file:
        file.write("Straße\n")
    with atomic_write(tmp_path / "b.bin", "wb") as file:
        file.write(b"\x00\r\n\xff")
    assert (tmp_path / "a.txt").read_bytes() == b"Stra\xc3\x9fe\n"
    assert (tmp_path / "b.bin").read_bytes() == b"\x00\r\n\xff"


@pytest.mark.parametrize("error", [RuntimeError("stop"), KeyboardInterrupt()])
def test_a_failing_block_keeps_the_old_file_and_leaves_no_partial_one(tmp_path, error):
    path = tmp_path / "record.json"
    path.write_text("old")
    with pytest.raises(type(error)), atomic_write(path) as file:
        file.write("half")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["record.json"]


def test_a_full_disk_raises_an_error_about_the_file_and_keeps_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    path.write_text("old")

    def no_space(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left") as caught, atomic_write(path) as file:
        file.write("new")
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["record.json"]


def test_concurrent_writers_never_mix(tmp_path):
    path = tmp_path / "a"
    texts = [letter * 20_000 for letter in "abcd"]

    def write(text):
        for _ in range(10):
            with atomic_write(path) as file:
                file.write(text)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert os.listdir(tmp_path) == ["a"]


def test_partial_files_of_killed_writers_are_removed_after_an_hour(tmp_path):
    old, hidden = tmp_path / ".a.0123.partial", tmp_path / ".hidden"
    for path in (old, hidden):
        path.write_text("half")
        os.utime(path, (0, 0))
    with atomic_write(tmp_path / "b") as at_work:
        at_work.write("whole")
        with atomic_write(tmp_path / "c") as file:
            file.write("next")
        assert len(os.listdir(tmp_path)) == 3
    assert sorted(os.listdir(tmp_path)) == [".hidden", "b", "c"]
    assert (tmp_path / "b").read_text() == "whole"
