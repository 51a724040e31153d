"""The cache: each entry is built once, completely or not at all, and rebuilt if damaged."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest
from huggingface_hub import constants

from normlab.data.cache import MANIFEST, cache_root, cached_folder, is_whole, offline


class Builder:
    calls = 0

    def __call__(self, folder):
        self.calls += 1
        (folder / "a.txt").write_text("text")
        (folder / "b.txt").write_text("more")


MANIFESTS = ["[]", '{"../secret": "x"}', '{"a.txt": 1}', "[1", "[" * 5000, "\x00"]
DAMAGES = [(MANIFEST, text) for text in MANIFESTS] + [("a.txt", "tex!"), ("b.txt", None)]


@pytest.mark.parametrize(("name", "text"), [*DAMAGES, (MANIFEST, None)])
def test_a_cache_entry_is_built_once_and_rebuilt_if_damaged(cache, name, text):
    build = Builder()
    entry = cached_folder("x", build)
    assert entry == cache / "x" and is_whole(entry)
    cached_folder("x", build)
    assert build.calls == 1
    (entry / name).unlink() if text is None else (entry / name).write_text(text)
    assert not is_whole(entry)
    cached_folder("x", build)
    assert build.calls == 2
    assert (entry / "a.txt").read_text() == "text" and is_whole(entry)


def _slow_build(folder):
    (folder / str(os.getpid())).write_text("built")
    time.sleep(0.3)


def _use(results):
    entry = cached_folder("x", _slow_build)
    results.put([path.name for path in entry.iterdir() if path.name != MANIFEST])


def test_processes_that_request_an_entry_simultaneously_share_one_build():
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_use, args=(results,)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [results.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 1


def test_reading_a_complete_entry_takes_no_lock(cache):
    entry = cached_folder("x", Builder())
    for lock in cache.glob("*.lock"):
        lock.unlink()
    assert cached_folder("x", Builder()) == entry
    assert not list(cache.glob("*.lock"))


def test_the_error_for_an_unwritable_cache_says_to_set_normlab_cache(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NORMLAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ValueError, match=r"cannot be written to .*; set NORMLAB_CACHE"):
        cached_folder("x", Builder())


def test_the_error_without_a_home_folder_says_which_variables_to_set(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("NORMLAB_CACHE")
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ValueError, match="no home folder; set HOME, or NORMLAB_CACHE"):
        cache_root()


def test_offline_also_applies_to_a_library_that_is_already_imported(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with offline():
        assert constants.is_offline_mode() and os.environ["HF_HUB_OFFLINE"] == "1"
    assert not constants.is_offline_mode() and "HF_HUB_OFFLINE" not in os.environ
