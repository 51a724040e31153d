"""The groups of a norm and their statistics on the tensor of the articles."""

import math

import pytest
import torch

from normlab.config.registry import options
from normlab.inspection.explain.norm_text import group_name
from normlab.inspection.norm.example_norm import example_norm
from normlab.inspection.norm.pooling import dependence, pooled_cells
from normlab.inspection.norm.worked_example import worked_groups
from normlab.norms.axes import AXES

DOCUMENT = torch.tensor(
    [[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], [[-1, 0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]]
).double()


OPTIONS = {option.name: option for option in options("norm")}


def worked(name):
    """Return a norm and its groups on the articles' tensor."""
    norm = example_norm(OPTIONS[name]).make()
    return norm, worked_groups(norm, pooled_cells(norm, dependence(norm)))


@pytest.mark.parametrize("name", ["ln", "bn", "bn_position", "bn_sample", "in", "seqn", "global"])
def test_groups_have_the_mean_and_variance_over_the_axes_that_the_norm_pools(name):
    norm, groups = worked(name)
    over = [AXES.index(axis) for axis in norm.pools]
    mean = DOCUMENT.mean(over, keepdim=True)
    variances = ((DOCUMENT - mean) ** 2).mean(over).flatten().tolist()
    assert [g.mean for g in groups] == pytest.approx(mean.flatten().tolist())
    assert [g.var for g in groups] == pytest.approx(variances)
    for group in groups:
        assert group.line == pytest.approx((group.mean, math.sqrt(group.var + 1e-5)), abs=1e-6)


def test_the_numbers_of_the_articles_are_reproduced():
    (sample, *_) = worked("bn_sample")[1]
    assert (group_name(sample.cells), sample.mean) == ("token 1", 1.5)  # mean([1,2,3,4,-1,0,1,2])
    assert worked("rms")[1][0].line == pytest.approx((0, math.sqrt(7.5)), abs=1e-4)
    first = worked("bn")[1][0]  # after one batch: a tenth of its mean 4 and variance 14 over n - 1
    assert first.line_in_eval == pytest.approx((0.4, math.sqrt(0.9 + 1.4 + 1e-5)))
    assert worked("ln")[1][0].line_in_eval == pytest.approx(worked("ln")[1][0].line)
    assert worked("derf")[1][0].line is None
