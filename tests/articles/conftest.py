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
    kinds = [*page["columns"]]
    explanations = [named(page, kinds[kind], values) for kind, *values in page["explanations"]]
    return {**page, "explanations": explanations}


def named(page, kind, values):
    """Return the values of a row by column name, as the page's script does."""
    row = {"kind": kind, **dict(zip(page["columns"][kind], values, strict=False))}
    if row.get("verdict") is not None:
        row["verdict"] = page["verdict_names"][row["verdict"]]
    return row


@pytest.fixture
def page(visit):
    return visit()
