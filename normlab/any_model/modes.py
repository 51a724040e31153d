"""The question what training mode changes, without dropout."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from normlab.any_model.calls import inside
from normlab.any_model.examination import LEAK, Examination
from normlab.any_model.finding import Finding, question
from normlab.any_model.leak import size
from normlab.any_model.movement import moved
from normlab.any_model.outputs import Outputs, tensors
from normlab.errors import UserError

_DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout)
_DROPOUTS = (*_DROPOUTS, F.feature_alpha_dropout, torch.dropout, torch.feature_dropout)

_LARGER = 10.0  # times the input's movement: more than a module makes of batch statistics before it


class _NoDropout(TorchFunctionMode):
    """Makes dropout, also that of attention, the identity."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention:
            args, kwargs = (*args[:4], 0.0, *args[5:])[: len(args)], kwargs | {"dropout_p": 0.0}
            kwargs = (
                kwargs if len(args) < 5 else {k: x for k, x in kwargs.items() if k != "dropout_p"}
            )
        return func(*args, **kwargs)


@question("modes")
def modes(about: Examination) -> Finding:
    """Does training mode, without dropout, move the output? Does padding enter norm statistics?

    The batch is run after `model.train()`, with dropout left out. If the output is still random (as
    with layer drop), only norms that pool in another way are put into training mode. Whether
    padding enters a norm's statistics is tested on the input that the norm gets for a padded row.
    In training, batch norm depends on the other rows by design.
    """
    text, verdict, value, path = _difference(about)
    values = {"training": value}
    for norm in about.norms if about.example.has_padding else []:
        if norm.training and norm.training.padding and not norm.evaluation.padding:
            words = f"{norm.name}: {norm.kind}, includes padding in its statistics in training"
            return Finding(f"{words}; {text}", values, verdict="look", module=norm.name)
    return Finding(text, values, verdict=verdict, value=value, threshold=LEAK, module=path)


def _difference(about: Examination) -> tuple[str, Any, float, str | None]:
    """Return a sentence on what training mode changes, its verdict, the movement, and a module."""
    model = about.model
    pooling = [norm.name for norm in about.norms if norm.training and _differs(norm)]
    names = dict(model.named_modules())

    def train_norms() -> None:
        for name in pooling:
            if name in names:
                names[name].train()

    try:
        before = about.outputs(about.example)
        after, again = (_trained(about, model.train, seed) for seed in (0, 1))
        noisy = _apart(after, again) > LEAK
        value = _apart(_trained(about, train_norms, 0) if noisy else after, before)
    except UserError as error:
        return f"the model cannot be run in training mode: {error}", "look", 0.0, None
    but = "; other differences are hidden by random numbers" * noisy
    if value <= about.rounding and not pooling:
        return f"training mode does not move the output, but for dropout{but}", "fine", value, None
    kinds = f"{len(pooling)} norm{'s use' if len(pooling) > 1 else ' uses'} batch statistics"
    text = f"training mode moves the output by {size(value)}"
    path = None if noisy else _first_difference(about, pooling)
    if path is None:
        return f"{text}: {kinds}, by design{but}", "fine", value, None
    also = f"; {kinds} too, by design" * bool(pooling)
    kind = type(names[path]).__name__ if path in names else "model"
    what = (
        f"{path or 'the model'} ({kind}) computes something else in training mode, without dropout"
    )
    return f"{text}: {what}{also}", "look", value, path


def _differs(norm: Any) -> bool:
    return norm.training.pools != norm.evaluation.pools


def _apart(y: Outputs, y0: Outputs) -> float:
    """Return the largest movement of outputs that two passes have in one shape."""
    both = [name for name in y0 if name in y and y[name].shape == y0[name].shape]
    return max((moved(y[name], y0[name]) for name in both), default=0.0)


def _trained(about: Examination, change: Callable[[], object], seed: int) -> Outputs:
    """Return the batch's outputs in training mode without dropout, for a seed."""
    with about.runner.changed(change):
        for each in (torch.manual_seed, np.random.seed, random.seed):
            each(seed)
        return about.runner(about.example, _NoDropout())


def _first_difference(about: Examination, pooling: list[str]) -> str | None:
    """Return the innermost module, but for norms that pool, whose inputs agree in both modes."""
    before, _ = about.runner.record(about.example)
    with about.runner.changed(about.model.train):
        after, _ = about.runner.record(about.example, _NoDropout())
    former = {(each.name, each.number): each for each in before}
    odd = [
        each
        for each in after
        if (old := former.get((each.name, each.number)))
        and (entered := _movement(old.given, each.given)) <= about.rounding
        and _movement(old.output, each.output) > max(about.rounding, _LARGER * entered)
    ]
    odd = [a for a in odd if not any(inside(b.name, a.name) for b in odd)]
    odd = [a for a in odd if not any(a.name == p or inside(p, a.name) for p in pooling)]
    return next((each.name for each in odd if not isinstance(each.module, nn.Dropout)), None)


def _movement(value: Any, other: Any) -> float:
    """Return the largest movement of the tensors in two values, infinite if a shape differs."""
    pairs = [*zip(tensors(value), tensors(other), strict=False)]
    if any(a.shape != b.shape for a, b in pairs):
        return math.inf
    return max((moved(b, a) for a, b in pairs if a.is_floating_point()), default=0.0)
