"""What the articles' norms pool over on their example tensor, computed with numpy."""

import numpy as np
import pytest

from normlab.claim_checks import compute
from normlab.inspection.examples.articles import TENSOR

X = np.array(TENSOR)
FIRST = {"bn_sample": X[:, 0], "ln": X[0, 0], "bn": X[..., 0]}


def test_the_first_group_of_each_norm_has_the_mean_and_variance_computed_by_hand():
    found = {each.name: each.numbers for each in compute("axes.worked")}
    for name, values in FIRST.items():
        assert found[name] == pytest.approx({"mean": values.mean(), "var": values.var()})
    assert {each.standing for each in compute("axes.worked")} == {"supports"}


def test_the_articles_code_fails_and_their_example_pools_more_than_their_table_says():
    code, example, papers = compute("axes.positions")
    assert code.finding == "raises: running_mean should contain 4 elements not 3"
    assert f"pools {X[:, 0].size} values (mean {X[:, 0].mean():g})" in example.finding
    assert papers.finding == f"it pools {X[..., 0].size} values, over batch and positions"
