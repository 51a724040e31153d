"""The norm of an option at the width of the articles' example tensor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from normlab.config.registry import Option, option_settings
from normlab.inspection.examples.articles import TENSOR_WIDTH, example_tensor
from normlab.inspection.norm.norm_calls import fixed_seed, run
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.ramp import Clock

HALF_WAY, LONG_RUN = 500, 1000
"""The step and the run's length at which `explain` shows a norm that does not pool at first."""


@dataclass(frozen=True)
class ExampleNorm:
    """An option of `configs/norm` at a width of 4.

    `settings` are the values in its config, and `changed` are the values that replace some of them
    to fit the width. The norm is at `step` of a run of 1000 steps on the example tensor, or outside
    a run if `step` is 0.
    """

    option: Option
    settings: Mapping[str, Any]
    changed: Mapping[str, int] = field(default_factory=dict)
    step: int = 0

    def make(self, **values: Any) -> Norm:
        """Return a new norm in training mode. `values` override its settings."""
        with fixed_seed():
            norm = make_norm(self.option.name, TENSOR_WIDTH, **{**self.changed, **values})
        norm = norm.double().train()
        for step in range(1, self.step + 1):
            norm.begin_step(Clock(step, LONG_RUN))
            if step < self.step:
                run(norm, example_tensor())
        return norm


def example_norm(option: Option) -> ExampleNorm:
    """Return an option's norm at a width of 4.

    If the norm does not accept that width, as with group norm's 8 groups, one integer setting is
    replaced by the first value that fits. Half the width is tried first, because group norm with
    one feature per group would erase all values. If nothing fits, the norm's error is raised.
    """
    node = option_settings("norm", option.name, "norm")
    settings = {name: value for name, value in node.items() if not name.startswith("_")}
    whole = [name for name, value in settings.items() if type(value) is int]
    tries = [{}, *({name: n} for name in whole for n in (TENSOR_WIDTH // 2, TENSOR_WIDTH, 1))]
    refused: list[ValueError] = []
    for changed in tries:
        try:
            make_norm(option.name, TENSOR_WIDTH, **changed)
            return ExampleNorm(option, settings, changed)
        except ValueError as error:
            refused.append(error)
    raise refused[0]
