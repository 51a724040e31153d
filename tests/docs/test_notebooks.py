"""The notebooks of docs/ run from their first cell to the last, in an empty folder."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_kept_without_outputs(path, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="the docs extra is not installed")
    from nbclient import NotebookClient

    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), inherited])))
    book = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out for cell in book.cells for out in cell.get("outputs", [])]
    assert [out for out in shown if out.get("name") == "stderr"] == []
    kinds = {kind for out in shown for kind in out.get("data", {})}
    assert {"text/html", "image/svg+xml"} <= kinds
