"""The documents' tensor: statistics by hand against what the modules really compute."""

import math
from dataclasses import replace

import pytest
import torch

from normlab.config.registry import options
from normlab.inspect.worked import explain

DOCUMENT = torch.tensor(
    [[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], [[-1, 0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]]
).double()
AXES = {"batch": 0, "position": 1, "feature": 2}


@pytest.fixture(scope="module")
def explained():
    return {option.name: explain(option) for option in options("norm")}


def by_hand(pools):
    """Return mean and variance of each group, in the order of first cells."""
    over = [AXES[axis] for axis in pools]
    mean = DOCUMENT.mean(over, keepdim=True)
    return mean.flatten().tolist(), ((DOCUMENT - mean) ** 2).mean(over).flatten().tolist()


@pytest.mark.parametrize("name", ["ln", "bn", "bn_position", "bn_sample", "in", "seqn", "global"])
def test_groups_have_the_moments_of_their_axes_and_the_outputs_follow(explained, name):
    page = explained[name]
    means, variances = by_hand(page.pools)
    groups = page.worked.groups
    assert [g.mean for g in groups] == pytest.approx(means)
    assert [g.var for g in groups] == pytest.approx(variances)
    for group in groups:
        for cell, x in zip(group.cells, group.values, strict=True):
            s, t, d = cell
            wanted = (x - group.mean) / math.sqrt(group.var + 1e-5)
            assert page.worked.train[s][t][d] == pytest.approx(wanted, abs=1e-6)


def test_the_documents_own_figures(explained):
    (sample, *_) = explained["bn_sample"].worked.groups
    assert sample.name == "token 1" and sample.mean == 1.5  # D0: mean([1,2,3,4,-1,0,1,2])
    assert sample.values == [1, 2, 3, 4, -1, 0, 1, 2]
    assert [g.mean for g in explained["ln"].worked.groups] == [2.5, 6.5, 10.5, 0.5, 4.5, 8.5]
    assert {g.var for g in explained["ln"].worked.groups} == {1.25}
    assert [g.mean for g in explained["bn"].worked.groups] == [4, 5, 6, 7]
    assert [g.mean for g in explained["in"].worked.groups] == [5, 6, 7, 8, 3, 4, 5, 6]


def test_what_was_subtracted_and_divided_by_is_read_off_the_outputs(explained):
    rms, none = explained["rms"].worked, explained["none"].worked
    assert rms.groups[0].line.center == pytest.approx(0, abs=1e-6)
    assert rms.groups[0].line.divisor == pytest.approx(math.sqrt(30 / 4), abs=1e-4)
    assert none.train == none.x


def test_groups_smaller_than_the_axes_are_found_by_trial(explained):
    gn = explained["gn"]
    assert gn.narrower and gn.changed == {"groups": 2} and gn.groups == 12
    assert gn.worked.groups[0].values == [1, 2]
    assert not any(page.narrower for name, page in explained.items() if name in ("ln", "bn", "in"))


def test_running_statistics_after_one_batch(explained):
    bn = explained["bn"].worked
    assert bn.momentum == 0.1
    assert [g.entered.var for g in bn.groups] == pytest.approx([14] * 4)  # over n - 1
    assert [g.kept.mean for g in bn.groups] == pytest.approx([0.4, 0.5, 0.6, 0.7])
    assert [g.kept.var for g in bn.groups] == pytest.approx([0.9 + 0.1 * 14] * 4)
    wanted = (1 - 0.4) / math.sqrt(2.3 + 1e-5)
    assert bn.eval[0][0][0] == pytest.approx(wanted) and not bn.same_in_eval
    rows = explained["bn_position"].worked.groups
    assert rows[4].name == "token 2, feature 1" and rows[4].kept.mean == pytest.approx(0.4)
    assert explained["ln"].worked.same_in_eval and explained["ln"].worked.groups[0].kept is None


def test_a_norm_that_pools_nothing_at_first_is_shown_half_way(explained):
    blend = explained["prepbn"]
    assert blend.scheduled and blend.step == 500
    assert blend.sees_train.others and blend.sees_train.later and not blend.sees_eval.axes
    assert blend.padding["include"]
    assert explained["pn"].scheduled and explained["pn"].step == 0
    assert not explained["bn"].scheduled


SEES = {  # features of its token, earlier tokens, later tokens, other samples
    "ln": (True, False, False, False),
    "in": (False, True, True, False),
    "bn": (False, True, True, True),
    "bn_sample": (True, False, False, True),
}


@pytest.mark.parametrize("name", SEES)
def test_what_an_output_depends_on(explained, name):
    page = explained[name]
    train, evaluated = page.sees_train, page.sees_eval
    assert (train.features, train.earlier, train.later, train.others) == SEES[name]
    assert not evaluated.axes if page.running else evaluated == train
    assert page.incremental == (not evaluated.earlier and not evaluated.later)


@pytest.mark.parametrize("name", ["bn", "bn_position", "bn_sample", "global"])
def test_padding_that_counts_changes_real_tokens(explained, name):
    assert explained[name].padding == {"exclude": False, "include": True, "fill": True}
    assert explained["ln"].padding == {"": False}


def test_state_is_told_in_terms_of_the_width(explained):
    assert explained["ln"].parameters == {"weight": "[D]", "bias": "[D]"}
    assert explained["ln"].buffers == {} and explained["none"].parameters == {}
    assert explained["bn"].buffers == {"running_mean": "[1, D]", "running_var": "[1, D]"}


NEW = '''
"""Half of each token."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Axis, Norm, Stream


class PastNorm(Norm):
    """Each token less the mean of it and those before (nobody, nowhere)."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"position"})

    def __init__(self, dim: int, *, parts: int, picky: bool) -> None:
        super().__init__(dim, scale=True, shift=False)
        if dim % parts:
            raise ValueError(f"norm.parts={parts} does not divide {dim}")
        self.picky = picky

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each token less the mean so far."""
        if self.picky:
            raise ValueError("never on a Monday")
        count = (x[:1, :, :1] * 0 + 1).cumsum(1)
        return (x - x.cumsum(1) / count) * self.weight
'''


@pytest.mark.parametrize("picky", ["false", "true"])
def test_a_norm_that_was_added_is_explained_too(tmp_path, monkeypatch, picky):
    import importlib.util
    import sys

    file = tmp_path / "past.py"
    file.write_text(NEW)
    spec = importlib.util.spec_from_file_location("normlab.norms.past", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "normlab.norms.past", module)
    spec.loader.exec_module(module)
    config = tmp_path / "past.yaml"
    config.write_text(f"_target_: normlab.norms.past.PastNorm\nparts: 3\npicky: {picky}\n")

    from normlab.config.registry import instantiate
    from normlab.inspect import subject
    from normlab.norms.base import Norm

    def make(option, dim, **values):
        node = {"_target_": "normlab.norms.past.PastNorm", "parts": 3, "picky": picky == "true"}
        return instantiate({**node, **values}, "norm", Norm, dim=dim)

    monkeypatch.setattr(subject, "make_norm", make)
    option = replace(options("norm")[0], name="past", path=config)
    page = explain(option)
    assert page.changed == {"parts": 2}
    if picky == "true":
        assert page.worked is None and page.refused == "never on a Monday"
        assert page.pooled == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]
        return
    assert page.narrower
    assert page.sees_train.earlier and not page.sees_train.later
    assert page.sees_eval == page.sees_train and not page.refused
