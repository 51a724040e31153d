"""The questions about models use only a few sentences in these tests."""

import pytest

from tests.inspection.tiny_models import ask_about_few_sentences


@pytest.fixture(autouse=True)
def _few_sentences(monkeypatch):
    ask_about_few_sentences(monkeypatch)
