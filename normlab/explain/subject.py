"""Decides how a norm is put on the table: at the documents' width of 4, in float64, repeatable.

An option whose values do not fit that width (group norm's 8 groups) is made with the first whole
number that does, and says so.
"""

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
import yaml
from torch import Tensor

from normlab.build import make_norm
from normlab.norms.base import Clock, Norm, Stream
from normlab.registry import Option

WIDTH = 4
HALF_WAY, STEPS = 500, 1000
"""The step at which a norm is shown that pools another way at the start of training."""
_DIVISORS = (2, 4, 1)


@dataclass(frozen=True)
class Setting:
    """A value of the norm's config; `allowed` lists the alternatives where they are named."""

    name: str
    value: Any
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """An option of `configs/norm`, with the values that had to change to fit the width of 4.

    `step` is where in training it is shown, 0 for a norm that nobody told of a step.
    """

    option: Option
    settings: tuple[Setting, ...]
    changed: Mapping[str, int] = field(default_factory=dict)
    step: int = 0

    def make(self, width: int = WIDTH, **values: Any) -> Norm:
        """Return a new norm in training mode, with other values where given."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            norm = make_norm(self.option.name, width, **{**self.changed, **values})
        if self.step:
            norm.clock = Clock(self.step, STEPS)
        return norm.double().train()

    def alternatives(self, name: str) -> tuple[str, ...]:
        """Return the allowed values of a setting; empty where there is no such choice."""
        return next((s.allowed for s in self.settings if s.name == name), ())


def subject(option: Option) -> Subject:
    """Return the norm of an option at the width of 4.

    Raises ValueError where no value of a whole number makes it fit.
    """
    values = {
        name: value
        for name, value in yaml.safe_load(option.path.read_text(encoding="utf-8")).items()
        if name != "_target_"
    }
    changed: Mapping[str, int] = {}
    try:
        norm = make_norm(option.name, WIDTH)
    except ValueError:
        norm, changed = _fitting(option, values)
    hints = get_type_hints(type(norm).__init__)
    settings = (Setting(name, value, _choices(hints.get(name))) for name, value in values.items())
    return Subject(option, tuple(settings), changed)


def _fitting(option: Option, values: Mapping[str, Any]) -> tuple[Norm, Mapping[str, int]]:
    whole = [name for name, value in values.items() if type(value) is int]
    for name in whole:
        for number in _DIVISORS:
            try:
                return make_norm(option.name, WIDTH, **{name: number}), {name: number}
            except ValueError:
                continue
    raise ValueError(
        f"norm {option.name} cannot be made for the documents' tensor, {WIDTH} features wide: "
        f"none of its values {', '.join(whole) or '(it has no whole number)'} makes it fit"
    )


def _choices(hint: Any) -> tuple[str, ...]:
    return tuple(map(str, get_args(hint))) if get_origin(hint) is Literal else ()


def run(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the norm's output; all tokens are real unless `valid` says otherwise."""
    if valid is None:
        valid = torch.ones(x.shape[:2], dtype=torch.bool)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return norm(x.clone(), Stream(valid))


def after_a_batch(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Norm:
    """Return a copy in eval mode that has been trained on one batch; `norm` stays as it was."""
    trained = copy.deepcopy(norm)
    run(trained, x, valid)
    return trained.eval()


def docstring(norm: Norm) -> str:
    """Return what the norm's class says it is, without what it raises."""
    text = inspect.getdoc(type(norm)) or ""
    return text.split("\nRaises:")[0].strip()
