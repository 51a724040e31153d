"""The interactive page: its data, and the page in a browser."""

import json
import re

import pytest

from normlab.articles.pages import PLAY
from normlab.config.folders import CONFIG_DIR

ROOT = CONFIG_DIR.parent


@pytest.fixture(scope="module")
def path():
    return PLAY


@pytest.fixture(scope="module")
def data():
    text = re.search(r'id="data">(.*?)</script>', PLAY.read_text("utf-8"), re.DOTALL)
    page = json.loads(text[1])
    explanations = [named(page, kind, values) for kind, *values in page["explanations"]]
    return {**page, "explanations": explanations}


def named(page, kind, values):
    """Return the values of a row by column name, as the page's script does."""
    return {"kind": kind, **dict(zip(page["columns"][kind], values, strict=False))}


@pytest.fixture
def page(visit):
    return visit()
