"""Calls of a norm that are repeatable, and comparisons of their outputs."""

import torch

from normlab.inspection.norm.norm_calls import (
    affected,
    call,
    differ,
    normal,
    one_by_one,
    run,
    run_copy,
    running_tables,
    trained_on,
)
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.tokens import ALL

X = normal(2, 3, 4, seed=1)


class Noise(Norm):
    pools = frozenset()

    def __init__(self):
        super().__init__(4, scale=False, shift=False)

    def forward(self, x, tokens=ALL):
        return x + torch.rand_like(x)


def test_each_call_of_a_norm_gets_the_same_random_draws_and_other_generators_advance():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    assert torch.equal(call(Noise(), X), call(Noise(), X))
    assert torch.equal(torch.rand(2), expected)


def test_only_run_updates_the_statistics_of_the_norm_itself():
    norm = make_norm("bn", 4).double().train()
    before = {name: table.clone() for name, table in running_tables(norm).items()}
    run_copy(norm, X)
    assert not trained_on(norm, X).training and norm.training
    assert all(torch.equal(table, before[name]) for name, table in running_tables(norm).items())
    run(norm, X)
    assert not torch.equal(norm.running_mean, before["running_mean"])
    assert running_tables(make_norm("ln", 4)) == {}


def test_one_by_one_equals_the_whole_sequence_only_without_statistics_over_positions():
    ln, in_ = (make_norm(name, 4).double() for name in ("ln", "in"))
    assert not differ(run_copy(ln, X), one_by_one(ln, X))
    assert differ(run_copy(in_, X), one_by_one(in_, X))


def test_an_input_affects_the_outputs_that_are_pooled_with_it():
    norm = make_norm("ln", 4).double()
    changed = affected(norm, X, (1, 2, 0), run_copy(norm, X))
    assert changed[1, 2].all() and changed.sum() == 4


def test_results_differ_beyond_rounding_or_if_one_is_not_finite():
    assert not differ(X, X + 1e-12)
    assert differ(X, X + 1e-6) and differ(X, X / 0)
