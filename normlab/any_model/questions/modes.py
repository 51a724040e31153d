"""The question of whether training mode changes the output, apart from dropout."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from normlab.any_model.tracing.class_names import class_name, is_dropout
from normlab.any_model.tracing.found_norms import FoundNorm
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.findings.relative_change import NonFinite, largest_change, relative_change

_LARGER = 10.0
"""How many times as much as its inputs a module's output must change for it to be the cause.

A smaller change may come from batch statistics in earlier modules.
"""
_SETTLED = 2e-3  # change of inputs behind a norm with settled statistics: its variance is unbiased
_SEEDS = (1, 2, 3, 4, 5)
"""Seeds to compare with seed 0. All but the first are used only if a change must be explained."""


@question("modes", of="module")
def modes(examination: Examination) -> Finding:
    """Does training mode, without dropout, change the output? Does padding enter norm statistics?

    The batch is run in float64 after `model.train()`, without dropout and stochastic depth. If the
    output is still random (as with layer drop), only norms that pool differently in training are
    put into training mode. Whether padding enters a norm's statistics is tested on the input that
    the norm gets for a padded row.
    In training, the output of batch norm depends on the other rows by design.
    """
    pooling = _pooling(examination)
    change = _change_in_training(examination, pooling)
    text, values = _in_words(change, examination), {"training": change.value}
    for norm in pooling if examination.example.has_padding else []:
        if norm.training and norm.training.padding and not norm.evaluation.padding:
            words = f"{norm.name}: {norm.kind}, includes padding in its statistics in training"
            return Finding(f"{words}; {text}", values, verdict="look", module=norm.name)
    return Finding(
        text,
        values,
        verdict="look" if change.error or change.unexpected else "fine",
        value=change.value,
        threshold=None if change.by_design else change.rounding,
        module=change.module,
    )


@dataclass(frozen=True)
class TrainingChange:
    """How much training mode, without dropout, changes the output, and what causes the change.

    `pooling` is the number of norms that pool differently in training. `value` is the relative
    change of the output, and `rounding` the largest one that rounding causes. If `noisy`, the
    output is random in training mode, so only these norms were put into it. `module` is the path of
    another module that computes something different in training, if there is one. `error` is the
    exception that the model raises in training mode, or "".
    """

    pooling: int
    value: float = 0.0
    non_finite: NonFinite = ""
    rounding: float = LEAK
    noisy: bool = False
    module: str | None = None
    error: str = ""

    @property
    def visible(self) -> bool:
        """Whether the output changes by more than rounding."""
        return self.value > self.rounding

    @property
    def by_design(self) -> bool:
        """Whether norms that pool in training are the only reason for the change."""
        return bool(self.pooling) and self.module is None

    @property
    def unexpected(self) -> bool:
        """Whether the output changes for a reason other than norms that pool by design."""
        return self.module is not None or (self.visible and not self.by_design)


def _change_in_training(examination: Examination, norms: Sequence[FoundNorm]) -> TrainingChange:
    pooling = [norm.name for norm in norms]
    try:
        return examination.in_widest_dtype(partial(_measured, examination, pooling))
    except UserError as error:
        return TrainingChange(len(pooling), error=str(error))


def _measured(examination: Examination, pooling: list[str], in_float64: bool) -> TrainingChange:
    """Run the batch in training mode. Raises UserError if the model cannot be run."""
    trained = partial(_trained, examination, examination.model.train, in_float64=in_float64)
    after = trained(0)

    def varies(seeds: Sequence[int]) -> bool:
        return any(_largest_change(examination, after, trained(n))[0] > LEAK for n in seeds)

    noisy = varies(_SEEDS[:1])
    change = _compared(examination, pooling, after, noisy=noisy, in_float64=in_float64)
    if change.unexpected and not noisy and varies(_SEEDS[1:]):
        return _compared(examination, pooling, after, noisy=True, in_float64=in_float64)
    return change


def _compared(
    examination: Examination,
    pooling: list[str],
    after: Outputs,
    *,
    noisy: bool,
    in_float64: bool,
) -> TrainingChange:
    """Compare the outputs in training mode, or with only norms in it if `noisy`, with the usual."""
    modules = dict(examination.model.named_modules())

    def train_norms() -> None:
        for name in pooling:
            if name in modules:
                modules[name].train()

    before = examination.outputs(examination.example, in_float64=in_float64)
    after = _trained(examination, train_norms, 0, in_float64=in_float64) if noisy else after
    value, non_finite = _largest_change(examination, after, before)
    rounding = examination.largest_rounding(in_float64=in_float64)
    search = (value > rounding or pooling) and not noisy
    with examination.operations(in_float64=in_float64):
        module = _first_difference(examination, pooling, rounding) if search else None
    return TrainingChange(
        len(pooling),
        value=value,
        non_finite=non_finite,
        rounding=rounding,
        noisy=noisy,
        module=module,
    )


def _in_words(change: TrainingChange, examination: Examination) -> str:
    if change.error:
        return f"the model cannot be run in training mode: {change.error}"
    but = "; other differences are hidden by random numbers" * change.noisy
    if not (change.visible or change.pooling):
        return f"training mode does not change the output, except for dropout{but}"
    text = f"the output {by_how_much(change.value, change.non_finite)} in training mode"
    several = f"{change.pooling} norm{'s use' if change.pooling > 1 else ' uses'} batch statistics"
    if not change.unexpected:
        return f"{text}: {several}, by design{but}"
    also = f"; {several} too, by design" * bool(change.pooling)
    name = change.module or "the model"
    if change.module is not None:
        name += f" ({class_name(examination.model.get_submodule(change.module))})"
    return f"{text}: {name} computes something else in training mode, without dropout{also}"


def _pooling(examination: Examination) -> list[FoundNorm]:
    """Return the norms that pool differently when the model is in training mode."""
    names = dict(examination.model.named_modules())
    with examination.runner.changed(examination.model.train):  # may leave some norms in eval mode
        trained = {name for name, module in names.items() if module.training}
    return [
        norm
        for norm in examination.norms
        if norm.training and norm.training.pools != norm.evaluation.pools
        if norm.name in trained or norm.name not in names  # functional norms are not modules
    ]


def _largest_change(examination: Examination, y: Outputs, y0: Outputs) -> tuple[float, NonFinite]:
    """Return the largest change at real tokens, of all outputs with the same shape in both."""
    both = [name for name in y0 if name in y and y[name].shape == y0[name].shape]
    pairs = [(_real(examination, y[n]), _real(examination, y0[n])) for n in both]
    return largest_change(pairs) if pairs else (0.0, "")


def _real(examination: Examination, y: Tensor) -> Tensor:
    """Return an output at real tokens, or all of it if its first two axes are not tokens."""
    real = examination.example.real
    return next((y[mask] for mask in (real, real.mT) if y.shape[:2] == mask.shape), y)


def _train(model: nn.Module, change: Callable[[], object]) -> None:
    """Put modules into training mode by `change`, but disable dropout and stochastic depth."""
    change()
    for module in model.modules():
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0
        if is_dropout(module):
            module.training = False


def _trained(
    examination: Examination, change: Callable[[], object], seed: int, *, in_float64: bool
) -> Outputs:
    """Return the outputs for the batch in training mode, without dropout and with a seed."""
    with examination.runner.changed(partial(_train, examination.model, change)):
        for set_seed in (torch.manual_seed, np.random.seed, random.seed):
            set_seed(seed)
        with examination.operations(in_float64=in_float64):
            return examination.runner(examination.example, slow_path(), _NoDropout())


def _first_difference(examination: Examination, pooling: list[str], rounding: float) -> str | None:
    """Return the path of the first innermost module whose output, but not input, changes.

    Norms that pool, and modules that contain them, are left out. A change of at most `rounding` is
    no change.
    """
    before, _ = examination.runner.record(examination.example)
    with examination.runner.changed(partial(_train, examination.model, examination.model.train)):
        after, _ = examination.runner.record(examination.example, _NoDropout())
    former = {(call.name, call.number): call for call in before}
    suspects = [
        call
        for call in after
        if (old := former.get((call.name, call.number)))
        and _differs_more(
            _change(old.inputs, call.inputs), _change(old.output, call.output), rounding
        )
    ]
    suspects = [a for a in suspects if not any(inside(b.name, a.name) for b in suspects)]
    suspects = [a for a in suspects if not any(a.name == p or inside(p, a.name) for p in pooling)]
    return suspects[0].name if suspects else None


def _differs_more(of_inputs: float, of_output: float, rounding: float) -> bool:
    """Return whether a module's output changes, but not its inputs, or hardly in comparison."""
    return any(
        of_inputs <= limit and of_output > max(limit, _LARGER * of_inputs)
        for limit in (rounding, _SETTLED)
    )


def _change(value: Any, other: Any) -> float:
    """Return the largest change of a tensor between two values, or infinity if a shape differs."""
    pairs = [*zip(tensors(value), tensors(other), strict=False)]
    if any(a.shape != b.shape for a, b in pairs):
        return math.inf
    return max((relative_change(b, a) for a, b in pairs if a.is_floating_point()), default=0.0)


_DROPOUTS = (
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, torch.dropout, torch.feature_dropout),
    *(F.alpha_dropout, F.feature_alpha_dropout),
)


class _NoDropout(TorchFunctionMode):
    """Makes dropout the identity, inside attention too."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention:
            by_position = dict(zip(("dropout_p", "is_causal"), args[4:], strict=False))
            return func(*args[:4], **{**by_position, **kwargs, "dropout_p": 0.0})
        return func(*args, **kwargs)
