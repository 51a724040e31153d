"""The committed results."""

import pytest

from normlab.articles.results import Results
from normlab.config.folders import RESULTS


@pytest.fixture(scope="module")
def results():
    return Results(RESULTS)
