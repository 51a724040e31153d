"""The cache: built once, whole or absent, never trusted when damaged."""

import multiprocessing
import os
import time

import pytest

from normlab.data.cache import MANIFEST, cached_folder, is_whole


class Builder:
    calls = 0

    def __call__(self, folder):
        self.calls += 1
        (folder / "a.txt").write_text("text")
        (folder / "b.txt").write_text("more")


@pytest.mark.parametrize("damage", [None, "edit", "remove", "manifest", "garble"])
def test_an_entry_is_built_once_and_again_where_it_is_damaged(tmp_path, damage):
    build = Builder()
    entry = cached_folder("x", build, root=tmp_path)
    assert entry == tmp_path / "x"
    if damage == "edit":
        (entry / "a.txt").write_text("tex!")
    elif damage == "remove":
        (entry / "b.txt").unlink()
    elif damage == "manifest":
        (entry / MANIFEST).unlink()
    elif damage == "garble":
        (entry / MANIFEST).write_text("[1")
    assert is_whole(entry) == (damage is None)
    cached_folder("x", build, root=tmp_path)
    assert build.calls == (1 if damage is None else 2)
    assert (entry / "a.txt").read_text() == "text" and is_whole(entry)


def _slow_build(folder):
    (folder / str(os.getpid())).write_text("built")
    time.sleep(0.3)


def _use(root, results):
    entry = cached_folder("x", _slow_build, root=root)
    results.put([path.name for path in entry.iterdir() if path.name != MANIFEST])


def test_processes_that_ask_at_once_share_one_build(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_use, args=(tmp_path, results)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [results.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 1
