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
from normlab.any_model.questions.wording import by_how_much
from normlab.any_model.tracing.calls import inside, slow_path
from normlab.any_model.tracing.scripted import class_name
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.findings.relative_change import NonFinite, largest_change, relative_change

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
def modes(examination: Examination) -> Finding:
    """Does training mode, without dropout, change the output? Does padding enter norm statistics?

    The batch is run after `model.train()`, without dropout. If the output is still random (as with
    layer drop), only norms that pool differently in training are put into training mode. Whether
    padding enters a norm's statistics is tested on the input that the norm gets for a padded row.
    In training, batch norm depends on the other rows by design.
    """
    pooling = _pooling(examination)
    text, verdict, value, path = _difference(examination, pooling)
    values = {"training": value}
    for norm in pooling if examination.example.has_padding else []:
        if norm.training.padding and not norm.evaluation.padding:
            words = f"{norm.name}: {norm.kind}, includes padding in its statistics in training"
            return Finding(f"{words}; {text}", values, verdict="look", module=norm.name)
    return Finding(text, values, verdict=verdict, value=value, threshold=LEAK, module=path)


def _pooling(examination: Examination) -> list[Any]:
    """Return the norms that pool differently once the model is in training mode."""
    names = dict(examination.model.named_modules())
    with examination.runner.changed(examination.model.train):  # may leave some norms in eval mode
        trained = {name for name, module in names.items() if module.training}
    return [
        norm
        for norm in examination.norms
        if norm.training and norm.training.pools != norm.evaluation.pools
        if norm.name in trained or norm.name not in names  # functional norms are not modules
    ]


def _difference(examination: Examination, norms: list[Any]) -> tuple[str, Any, float, str | None]:
    """Return a sentence on what training mode changes, the verdict, the change, and its module."""
    model = examination.model
    pooling, names = [norm.name for norm in norms], dict(model.named_modules())

    def train_norms() -> None:
        for name in pooling:
            if name in names:
                names[name].train()

    try:
        before = examination.outputs(examination.example)
        after, again = (_trained(examination, model.train, seed) for seed in (0, 1))
        noisy = _largest_change(examination, after, again)[0] > LEAK
        trained = _trained(examination, train_norms, 0) if noisy else after
        value, non_finite = _largest_change(examination, trained, before)
    except UserError as error:
        return f"the model cannot be run in training mode: {error}", "look", 0.0, None
    but = "; other differences are hidden by random numbers" * noisy
    if value <= examination.rounding and not pooling:
        text = f"training mode does not change the output, except for dropout{but}"
        return text, "fine", value, None
    kinds = f"{len(pooling)} norm{'s use' if len(pooling) > 1 else ' uses'} batch statistics"
    text = f"the output {by_how_much(value, non_finite)} in training mode"
    path = None if noisy else _first_difference(examination, pooling)
    if path is None and pooling:
        return f"{text}: {kinds}, by design{but}", "fine", value, None
    also = f"; {kinds} too, by design" * bool(pooling)
    kind = f" ({class_name(names[path])})" if path in names else ""
    what = f"{path or 'the model'}{kind} computes something else in training mode, without dropout"
    return f"{text}: {what}{also}", "look", value, path


def _largest_change(examination: Examination, y: Outputs, y0: Outputs) -> tuple[float, NonFinite]:
    """Return the largest change, at real tokens, of outputs with the same shape in two passes."""
    both = [name for name in y0 if name in y and y[name].shape == y0[name].shape]
    pairs = [(_real(examination, y[n]), _real(examination, y0[n])) for n in both]
    return largest_change(pairs) if pairs else (0.0, "")


def _real(examination: Examination, y: Tensor) -> Tensor:
    """Return an output at real tokens, if its first two axes are rows and positions."""
    real = examination.example.real
    return next((y[mask] for mask in (real, real.mT) if y.shape[:2] == mask.shape), y)


def _train(model: nn.Module, change: Callable[[], object]) -> None:
    """Put modules into training mode by `change`, without the dropout inside torch's functions."""
    change()
    for module in model.modules():
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0


def _trained(examination: Examination, change: Callable[[], object], seed: int) -> Outputs:
    """Return the batch's outputs in training mode without dropout, for a seed."""
    with examination.runner.changed(partial(_train, examination.model, change)), slow_path():
        for set_seed in (torch.manual_seed, np.random.seed, random.seed):
            set_seed(seed)
        return examination.runner(examination.example, _NoDropout())


def _first_difference(examination: Examination, pooling: list[str]) -> str | None:
    """Return the first innermost module whose output, but not its inputs, depends on the mode.

    Norms that pool, and modules around them, do not count.
    """
    before, _ = examination.runner.record(examination.example)
    with examination.runner.changed(partial(_train, examination.model, examination.model.train)):
        after, _ = examination.runner.record(examination.example, _NoDropout())
    former = {(call.name, call.number): call for call in before}
    suspects = [
        call
        for call in after
        if (old := former.get((call.name, call.number)))
        and (of_inputs := _change(old.inputs, call.inputs)) <= examination.rounding
        and _change(old.output, call.output) > max(examination.rounding, _LARGER * of_inputs)
    ]
    suspects = [a for a in suspects if not any(inside(b.name, a.name) for b in suspects)]
    suspects = [a for a in suspects if not any(a.name == p or inside(p, a.name) for p in pooling)]
    return next((a.name for a in suspects if not isinstance(a.module, nn.Dropout)), None)


def _change(value: Any, other: Any) -> float:
    """Return the largest change of the tensors in two values, infinite if a shape differs."""
    pairs = [*zip(tensors(value), tensors(other), strict=False)]
    if any(a.shape != b.shape for a, b in pairs):
        return math.inf
    return max((relative_change(b, a) for a, b in pairs if a.is_floating_point()), default=0.0)
