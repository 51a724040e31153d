"""Fixtures for the training tests: a run that was never interrupted."""

from pathlib import Path

import pytest

from tests.tiny_runs import RESUMED, run, tiny


@pytest.fixture(scope="session")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the run `RESUMED`, which was never interrupted."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ended = run(["train", *tiny(corpus, folder / "runs", *RESUMED)], folder / "log")
    assert ended.status == 0, ended.output
    (record,) = (folder / "runs").rglob("record.json")
    return record.parent
