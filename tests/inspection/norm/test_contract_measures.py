"""What the questions of the contract measure, known from a norm's formula."""

from functools import partial

import pytest
import torch

from normlab.inspection.norm import contract_measures as measures
from normlab.inspection.norm.bare_norm import BareNorm
from normlab.norms.make import make_norm


def bare(name):
    return BareNorm(partial(make_norm, name))


def test_gradients_are_named_after_the_input_and_the_parameters():
    assert [*measures.gradients_by_name(bare("ln"))] == ["the input", "weight", "bias"]
    assert [*measures.gradients_by_name(bare("none"))] == ["the input"]


@pytest.mark.parametrize(
    ("name", "axes"), [("ln", {"feature"}), ("bn", {"batch", "position"}), ("in", {"position"})]
)
def test_only_the_pooled_axes_affect_an_output(name, axes):
    assert measures.affecting_axes(bare(name)) == axes


def test_with_momentum_1_eval_repeats_training_and_a_doubled_formula_doubles_both():
    norm = bare("bn")
    plain = measures.outputs_in_both_modes(norm, x := norm.values(4, 6))
    doubled = measures.outputs_in_both_modes(norm, x, doubled="formula")
    torch.testing.assert_close(plain.training, plain.in_eval)
    torch.testing.assert_close(doubled.training, 2 * plain.training)
    assert measures.formula_use(norm, x) == (True, True)


def test_recalibration_changes_the_tables_and_restores_them():
    changed = measures.effects_on_statistics(bare("bn"))
    assert {"running_mean", "running_var"} <= {*changed.by_recalibration}
    assert changed.by_bypass == changed.not_restored == []
