"""Fixtures for the data tests."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give each test its own cache and return the folder."""
    monkeypatch.setenv("NORMLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
