"""The question of what training mode changes, apart from dropout."""

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normlab.any_model.batches.outputs import Outputs, tensors
from normlab.any_model.questions.examination import LEAK, Examination
from normlab.any_model.questions.leak import by_how_much
from normlab.any_model.tracing.calls import inside, slow_path
from normlab.any_model.tracing.scripted import class_name
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.findings.relative_change import Oddity, farthest, moved

_DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout)
_DROPOUTS = (*_DROPOUTS, F.feature_alpha_dropout, torch.dropout, torch.feature_dropout)

# A module is the cause if its output changes this many times as much as its inputs; smaller changes
# can be passed on from batch statistics before it.
_LARGER = 10.0


class _NoDropout(TorchFunctionMode):
    """Makes dropout the identity, inside attention too."""

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


@question("modes", of="module")
def modes(about: Examination) -> Finding:
    """Does training mode, without dropout, change the output? Does padding enter norm statistics?

    The batch is run after `model.train()`, without dropout. If the output is still random (as with
    layer drop), only norms that pool differently in training are put into training mode. Whether
    padding enters a norm's statistics is tested on the input that the norm gets for a padded row.
    In training, batch norm depends on the other rows by design.
    """
    pooling = _pooling(about)
    text, verdict, value, path = _difference(about, pooling)
    values = {"training": value}
    for norm in pooling if about.example.has_padding else []:
        if norm.training.padding and not norm.evaluation.padding:
            words = f"{norm.name}: {norm.kind}, includes padding in its statistics in training"
            return Finding(f"{words}; {text}", values, verdict="look", module=norm.name)
    return Finding(text, values, verdict=verdict, value=value, threshold=LEAK, module=path)


def _pooling(about: Examination) -> list[Any]:
    """Return the norms that pool differently once the model is in training mode."""
    names = dict(about.model.named_modules())
    with about.runner.changed(about.model.train):  # may leave some norms in eval mode
        trained = {name for name, module in names.items() if module.training}
    return [
        norm
        for norm in about.norms
        if norm.training and norm.training.pools != norm.evaluation.pools
        if norm.name in trained or norm.name not in names  # functional norms are not modules
    ]


def _difference(about: Examination, norms: list[Any]) -> tuple[str, Any, float, str | None]:
    """Return a sentence on what training mode changes, the verdict, the change, and its module."""
    model = about.model
    pooling, names = [norm.name for norm in norms], dict(model.named_modules())

    def train_norms() -> None:
        for name in pooling:
            if name in names:
                names[name].train()

    try:
        before = about.outputs(about.example)
        after, again = (_trained(about, model.train, seed) for seed in (0, 1))
        noisy = _apart(about, after, again)[0] > LEAK
        trained = _trained(about, train_norms, 0) if noisy else after
        value, oddity = _apart(about, trained, before)
    except UserError as error:
        return f"the model cannot be run in training mode: {error}", "look", 0.0, None
    but = "; other differences are hidden by random numbers" * noisy
    if value <= about.rounding and not pooling:
        text = f"training mode does not change the output, except for dropout{but}"
        return text, "fine", value, None
    kinds = f"{len(pooling)} norm{'s use' if len(pooling) > 1 else ' uses'} batch statistics"
    text = f"the output {by_how_much(value, oddity)} in training mode"
    path = None if noisy else _first_difference(about, pooling)
    if path is None and pooling:
        return f"{text}: {kinds}, by design{but}", "fine", value, None
    also = f"; {kinds} too, by design" * bool(pooling)
    kind = f" ({class_name(names[path])})" if path in names else ""
    what = f"{path or 'the model'}{kind} computes something else in training mode, without dropout"
    return f"{text}: {what}{also}", "look", value, path


def _apart(about: Examination, y: Outputs, y0: Outputs) -> tuple[float, Oddity]:
    """Return the largest change, at real tokens, of outputs with the same shape in two passes."""
    both = [name for name in y0 if name in y and y[name].shape == y0[name].shape]
    return farthest((_real(about, y[n]), _real(about, y0[n])) for n in both) if both else (0.0, "")


def _real(about: Examination, y: Tensor) -> Tensor:
    """Return an output at real tokens, if its first two axes are rows and positions."""
    real = about.example.real
    return next((y[each] for each in (real, real.mT) if y.shape[:2] == each.shape), y)


def _train(model: nn.Module, change: Callable[[], object]) -> None:
    """Put modules into training mode by `change`, without the dropout inside torch's functions."""
    change()
    for module in model.modules():
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0


def _trained(about: Examination, change: Callable[[], object], seed: int) -> Outputs:
    """Return the batch's outputs in training mode without dropout, for a seed."""
    with about.runner.changed(partial(_train, about.model, change)), slow_path():
        for each in (torch.manual_seed, np.random.seed, random.seed):
            each(seed)
        return about.runner(about.example, _NoDropout())


def _first_difference(about: Examination, pooling: list[str]) -> str | None:
    """Return the first innermost module whose output, but not its inputs, depends on the mode.

    Norms that pool, and modules around them, do not count.
    """
    before, _ = about.runner.record(about.example)
    with about.runner.changed(partial(_train, about.model, about.model.train)):
        after, _ = about.runner.record(about.example, _NoDropout())
    former = {(each.name, each.number): each for each in before}
    odd = [
        each
        for each in after
        if (old := former.get((each.name, each.number)))
        and (entered := _movement(old.inputs, each.inputs)) <= about.rounding
        and _movement(old.output, each.output) > max(about.rounding, _LARGER * entered)
    ]
    odd = [a for a in odd if not any(inside(b.name, a.name) for b in odd)]
    odd = [a for a in odd if not any(a.name == p or inside(p, a.name) for p in pooling)]
    return next((each.name for each in odd if not isinstance(each.module, nn.Dropout)), None)


def _movement(value: Any, other: Any) -> float:
    """Return the largest change of the tensors in two values, infinite if a shape differs."""
    pairs = [*zip(tensors(value), tensors(other), strict=False)]
    if any(a.shape != b.shape for a, b in pairs):
        return math.inf
    return max((moved(b, a) for a, b in pairs if a.is_floating_point()), default=0.0)
