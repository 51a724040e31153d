"""Options at the width of the articles' example tensor."""

from dataclasses import replace

import pytest

from normlab.config.registry import options
from normlab.inspection.examples.articles import example_tensor
from normlab.inspection.norm.example_norm import HALF_WAY, example_norm

OPTIONS = {option.name: option for option in options("norm")}


@pytest.mark.parametrize(("name", "changed"), [("gn", {"groups": 2}), ("bn", {})])
def test_a_setting_is_replaced_only_if_the_norm_refuses_the_width(name, changed):
    example = example_norm(OPTIONS[name])
    assert example.changed == changed and example.make().dim == 4


def test_a_norm_can_be_built_with_changed_settings_and_at_a_step_of_a_run():
    assert example_norm(OPTIONS["bn"]).make(padding="include").padding == "include"
    example = example_norm(OPTIONS["prepbn"])
    at_start, half_way = example.make(), replace(example, step=HALF_WAY).make()
    assert at_start.ramps and at_start.clock != half_way.clock


def test_at_a_step_of_a_run_a_norm_has_been_through_its_warm_up():
    norm = replace(example_norm(OPTIONS["taper"]), step=HALF_WAY).make()
    r = example_tensor().square().mean(-1).add(1e-6).sqrt()
    assert float(norm.factor) == pytest.approx(float(r.sum() / r.square().sum()), rel=1e-4)
