"""Data sets of the Hugging Face Hub."""

import logging

import pytest

from normlab.data.hub import load_tables
from normlab.errors import UserError


def test_a_failed_download_raises_one_error_without_warnings(monkeypatch):
    logger, warned = logging.getLogger("huggingface_hub.utils._http"), []

    def load(*_):
        warned.append(logger.isEnabledFor(logging.WARNING))
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", load)
    with pytest.raises(UserError, match=r"ConnectionError: no network\); set data_dir=FOLDER"):
        load_tables("some/text", files="train.de")
    assert warned == [False] and logger.isEnabledFor(logging.WARNING)
