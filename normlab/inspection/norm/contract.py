"""The norm contract: what the rest of the package assumes about every norm.

`normlab norm check` asks these questions; the tests ask them of every option of `configs/norm`.
"""

import copy
import inspect
import traceback
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.inspection.examples.articles import LAST_IS_PADDING
from normlab.inspection.norm.bare_norm import STEPS, BareNorm, loss, train_step
from normlab.inspection.norm.norm_calls import (
    call,
    differ,
    one_by_one,
    run,
    run_copy,
    running_tables,
)
from normlab.inspection.norm.padding_effect import with_padding
from normlab.inspection.norm.pooling import AXIS_OF, dependence, sources
from normlab.inspection.questions import questions
from normlab.norms.agreement import agrees
from normlab.norms.axes import AXES, axes_in_words, in_order
from normlab.norms.batch import BatchNorm
from normlab.norms.fast import FAST
from normlab.norms.layer import TokenNorm
from normlab.norms.model_norms import ModelNorms, recalibrated
from normlab.norms.ramp import Clock
from normlab.norms.running import RunningNorm, normalized_by

BATCH, POSITION, FEATURE = AXES
_STEPS_TO_SETTLE = 400
# relative to the largest output: how close running averages get to the batch's values
_SETTLED = 0.01


class Broken(Exception):
    """A violation of the norm contract; its message says what is wrong and how to fix it."""


def require(holds: object, otherwise: str) -> None:
    """Raise Broken with the message `otherwise` unless `holds`."""
    if not holds:
        raise Broken(otherwise)


def examine(norm: BareNorm) -> Iterator[tuple[str, Finding]]:
    """Yield each contract question's name and finding: `broken` after Broken or another error."""
    file = inspect.getfile(type(norm.new()))
    for each in questions("norm"):
        try:
            result = each.ask(norm)
            answer = result if isinstance(result, Finding) else Finding(result)
        except Broken as broken:
            answer = Finding(str(broken), verdict="broken")
        except Exception as error:
            calls = traceback.extract_tb(error.__traceback__)
            lines = [f" ({Path(file).name}:{e.lineno})" for e in calls if e.filename == file]
            message = str(error).strip().partition("\n")[0] + "".join(lines[-1:])
            answer = Finding(f"raises {type(error).__name__}: {message}", verdict="broken")
        yield each.name, answer


@question("shape", of="norm")
def shape(norm: BareNorm) -> str:
    """Is the output finite, does it have the input's shape, and is the input unchanged?"""
    for size in ((4, 6), (1, 6), (3, 1)):
        x = norm.values(*size)
        before = x.clone()
        y = norm.new()(x)  # without tokens, all tokens are real
        expected, shape = (" x ".join(map(str, t.shape)) for t in (x, y))
        require(expected == shape, f"returns shape {shape} for an input of shape {expected}")
        require(torch.equal(x, before), "modifies its input, which the residual connection reads")
        require(y.isfinite().all(), f"returns NaN or infinity for {size[0]} x {size[1]} tokens")
    for value, training in product((0.0, 3.0), (True, False)):
        x = torch.full((4, 6, norm.width), value, dtype=torch.float64)
        finite = call(norm.new().train(training), x).isfinite().all()
        require(finite, f"returns NaN or infinity if every value is {value:g}: bound its divisor")
    return "the output is finite and has the input's shape; the input is unchanged"


@question("precision", of="norm")
def precision(norm: BareNorm) -> str:
    """Does the output have the input's dtype, and are statistics accurate under bf16?

    bf16 values near 300 are 2 apart: too coarse for statistics of values with a deviation of 3.
    """
    x, valid = norm.tokens()
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        bare = norm.new(torch.float64 if dtype == torch.float64 else torch.float32)
        returned = call(bare, x.to(dtype), valid).dtype
        require(
            returned == dtype, f"returns {returned} for {dtype}: end `forward` with `.to(x.dtype)`"
        )
    bare, exact = norm.new(torch.float32), norm.new(torch.float32)
    x = (x + 300).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = call(bare, x, valid).float()[valid]
    close = torch.allclose(y, call(exact, x.float(), valid)[valid], rtol=1e-2, atol=1e-2)
    cure = "compute them in float32, from `widen(x)` of normlab/norms/moments.py"
    require(close, f"statistics of bf16 values with mean 300 are inaccurate: {cure}")
    wrong = [name for name, table in running_tables(bare).items() if table.dtype != torch.float32]
    require(not wrong, f"keeps {', '.join(wrong)} in a dtype other than float32")
    return "the output has the input's dtype; statistics are in float32 under bf16"


@question("pools", of="norm")
def pools(norm: BareNorm) -> str:
    """Does the norm pool over the axes that it declares, before and after training?"""
    norms = (norm.new(), norm.trained())
    declared = set(norms[0].pools)
    axes = {AXIS_OF[source] for bare in norms for source in sources(dependence(bare, features=2))}
    remembered = {BATCH, POSITION} if isinstance(norms[0], RunningNorm) else set()
    beyond, without = axes - declared, declared - axes - remembered
    mixes = beyond == {FEATURE} and bool(declared & {BATCH, POSITION})
    prefix = f"declares pools={{{', '.join(in_order(declared))}}}, but its output"
    more, less = (" and ".join(in_order(axes)) for axes in (beyond, without))
    require(not beyond or mixes, f"{prefix} also depends on {more}: declare all axes it pools over")
    require(not without, f"{prefix} does not depend on {less}")
    also = "; an output also depends on its token's other features" if beyond else ""
    return f"over {axes_in_words(declared).replace(', ', ' and ')}, as declared{also}"


@question("padding", of="norm")
def padding(norm: BareNorm) -> str:
    """Are the outputs, gradients and statistics of real tokens unaffected by padding?"""
    x = norm.values(4, 5)
    real = torch.ones(4, 5, dtype=torch.bool)
    for bare, mode in ((norm.new(), "training"), (norm.trained().eval(), "eval")):
        plain = with_padding(bare, x, None)
        for columns, value in ((0, 0.0), (3, 0.0), (6, 1e3)):
            padded = with_padding(bare, x, real, columns=columns, value=value)
            pairs = zip(("outputs", "gradients", "statistics"), plain, padded, strict=False)
            changed = " and ".join(what for what, before, after in pairs if differ(before, after))
            require(
                not changed,
                f"in {mode} padding changes the {changed} of real tokens: use `tokens.real(x)` "
                "(`tokens.valid` is None without padding)",
            )
            require(not padded.leaked.any(), f"in {mode} a gradient flows into padding")
    return "outputs, gradients and statistics are the same with and without padding"


@question("independent", of="norm")
def independent(norm: BareNorm) -> str:
    """In eval, does an output depend on its batch and its whole sequence exactly as declared?"""
    bare = norm.trained().eval()
    x, valid = norm.tokens(STEPS + 1)
    whole = run_copy(bare, x, valid)[valid]
    single = [run_copy(bare, x[[n]], valid[[n]])[0, real] for n, real in enumerate(valid)]
    flags = {
        "batch_independent": ("alone", bare.batch_independent, torch.cat(single)),
        "incremental": ("token by token", bare.incremental, one_by_one(bare, x, valid)[valid]),
    }
    for flag, (how, declared, y) in flags.items():
        depends = differ(whole, y)
        require(
            depends != declared,
            f"`{flag}` is {declared}, but in eval a sequence has "
            f"{'a different' if depends else 'the same'} output {how}: declare `pools`, use "
            "RunningNorm for running statistics, and count positions from `tokens.start`",
        )
    parts = [f"{'the same' if yes else 'different'} {how}" for how, yes, _ in flags.values()]
    return f"in eval a sequence's output is {' and '.join(parts)}, as declared"


@question("gradient", of="norm")
def gradient(norm: BareNorm) -> str:
    """Do the input and all parameters get a finite gradient, and an exact one if declared so?"""
    bare = norm.new()
    x, valid = norm.tokens()
    loss(call(bare, x.requires_grad_(), valid)[valid]).backward()
    learned = {"the input": x, **dict(bare.named_parameters())}
    idle = [name for name, tensor in learned.items() if tensor.grad is None]
    cure = "give `super().__init__` scale=False or shift=False, or use it in `forward`"
    require(not idle, f"no gradient reaches {', '.join(idle)}: {cure}")
    for name, tensor in learned.items():
        finite = tensor.grad is not None and tensor.grad.isfinite().all()
        require(finite, f"the gradient of {name} is not finite")
    reached = f"a finite gradient reaches {', '.join(learned)}"
    if not bare.exact_gradient:
        return f"{reached}; it declares exact_gradient=False"
    bare = norm.new()
    right = torch.autograd.gradcheck(
        lambda x: call(copy.deepcopy(bare), x, LAST_IS_PADDING) * LAST_IS_PADDING[..., None],
        norm.values(2, 3).requires_grad_(),
        atol=1e-6,
        fast_mode=True,
        raise_exception=False,
    )
    require(right, "the backward pass is not exact: if intended, declare exact_gradient = False")
    return f"{reached}, and it is exact"


@question("formula", of="norm")
def formula(norm: BareNorm) -> str | Finding:
    """Is the norm's `formula` used both in training and in eval?

    With momentum 1 the running statistics are the batch's, so eval repeats the training output. If
    a norm trains with a different formula, eval repeats it after enough steps on one batch.
    Replacing the formula must change both outputs.
    """
    kind = type(norm.new())
    if getattr(kind, "formula", TokenNorm.formula) is TokenNorm.formula:
        return Finding.none("it has no `formula`")
    x = norm.values(4, 6)
    plain = _in_both_modes(norm, x)
    if issubclass(kind, RunningNorm) and kind.same_in_training:
        same = torch.allclose(*plain, rtol=1e-9, atol=1e-9)
        require(
            same,
            "with momentum 1 a batch has a different output in eval than in training: use one "
            "`formula` in both, or declare same_in_training = False",
        )
    elif issubclass(kind, RunningNorm):
        in_training, in_eval = _settled(norm, x)
        difference = float((in_training - in_eval).abs().max() / in_eval.abs().max())
        require(
            difference < _SETTLED,
            f"after {_STEPS_TO_SETTLE} steps on one batch, whose statistics are then the running "
            f"ones, training and eval differ by {difference:.0%}: `training_formula` and `formula` "
            "contradict each other",
        )
    doubled = _in_both_modes(norm, x, "formula")
    changed_by_formula = [not torch.equal(y, z) for y, z in zip(plain, doubled, strict=True)]
    if not changed_by_formula[0] and issubclass(kind, RunningNorm):
        changed_by_formula[0] = not torch.equal(
            plain[0], _in_both_modes(norm, x, "training_formula")[0]
        )
    for changed, mode in zip(changed_by_formula, ("training", "eval"), strict=True):
        require(changed, f"another `formula` does not change the output in {mode}: use it there")
    runs = "the formula is used in training and in eval"
    if kind in FAST and agrees(norm.new()):
        return f"{runs}, or a kernel that equals it where both were compared"
    if kind in FAST:
        return (
            f"{runs}; its kernel in normlab/norms/fast.py computes another one and is not used: "
            "for speed, change the kernel too"
        )
    return runs


def _in_both_modes(norm: BareNorm, x: Tensor, doubled: str | None = None) -> tuple[Tensor, Tensor]:
    """Return a batch's output in training, then in eval.

    The method named by `doubled` then returns twice its value.
    """
    bare = norm.new()
    if bare.ramps:
        bare.begin_step(Clock(STEPS, STEPS))  # the last step of a run
    if isinstance(bare, RunningNorm):
        bare.momentum = 1.0
    if isinstance(bare, BatchNorm):
        bare.unbiased = False  # a batch is normalized by its biased variance
    if doubled is not None:
        kind, method = type(bare), getattr(type(bare), doubled, None)
        twice = {doubled: lambda self, *args: 2 * method(self, *args)} if method else {}
        cast("Any", bare).__class__ = type(kind.__name__, (kind,), twice)
    with torch.no_grad():
        return call(bare, x), call(bare.eval(), x)


def _settled(norm: BareNorm, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a batch's output in training, after many late steps of a run on it, then in eval."""
    bare = norm.new()
    if isinstance(bare, BatchNorm):
        bare.unbiased = False
    norms = ModelNorms(nn.Sequential(bare))
    for _ in range(_STEPS_TO_SETTLE):
        norms.begin_step(STEPS, STEPS)
        y = call(bare, x.clone().requires_grad_())
        y.sum().backward()
        norms.commit()
    with torch.no_grad():
        return y.detach(), call(bare.eval(), x)


@question("saved", of="norm")
def saved(norm: BareNorm) -> str:
    """Does eval leave the state unchanged, and does a saved norm resume training bit for bit?"""
    saved_norm = norm.trained().eval()
    before = _state(saved_norm)
    run(saved_norm, *norm.tokens(STEPS + 1))
    altered = _altered(before, _state(saved_norm))
    require(not altered, f"a forward in eval changes {altered}")
    for stop in (3, STEPS - 3):
        saved_norm, loaded_norm = norm.trained(stop), norm.new()
        loaded_norm.load_state_dict(copy.deepcopy(saved_norm.state_dict()))
        at = f"saved after step {stop} and loaded,"
        for number in range(stop + 1, stop + 4):
            pairs = zip(
                train_step(saved_norm, number), train_step(loaded_norm, number), strict=True
            )
            same = all(torch.equal(mine, theirs) for mine, theirs in pairs)
            cure = "its state must be in buffers (`register_buffer`)"
            require(same, f"{at} its output or gradient differs at step {number}: {cure}")
        altered = _altered(_state(saved_norm), _state(loaded_norm))
        require(not altered, f"{at} {altered} differ")
        x = norm.values(4, 6)
        same = torch.equal(run_copy(saved_norm.eval(), x), run_copy(loaded_norm.eval(), x))
        require(same, f"{at} its output in eval differs")
    return "eval changes nothing; training resumes bit for bit from the saved state"


@question("running", of="norm")
def running(norm: BareNorm) -> str | Finding:
    """Can running statistics be bypassed, recalibrated and restored?"""
    bare = norm.trained()
    if not isinstance(bare, RunningNorm):
        return Finding.none("it keeps no running statistics")
    model, before = nn.Sequential(bare), _state(bare)
    x, valid = norm.tokens(STEPS + 2)
    with normalized_by(model, "batch"):
        call(bare, x.clone().requires_grad_(), valid)[valid].sum().backward()
    altered = _altered(before, _state(bare))
    require(not altered, f"a forward in eval with batch statistics changes {altered}")

    def feed() -> None:
        run(bare, x, valid)

    with recalibrated(model, feed):
        changed = _altered(before, _state(bare))
    require(
        changed,
        "recalibration changes nothing: pass the batch's moments to `self.remember` unless "
        "`self.regime` is running, and update the tables in `enter`",
    )
    altered = _altered(before, _state(bare))
    require(not altered, f"recalibration does not restore {altered}")
    return "running statistics can be bypassed, recalibrated and restored"


def _state(norm: nn.Module) -> dict[str, Tensor]:
    """Return copies of the tensors in the norm's state dict."""
    saved = norm.state_dict().items()
    return {name: value.clone() for name, value in saved if isinstance(value, Tensor)}


def _altered(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> str:
    """Return the names of the tensors that changed, as text."""
    return ", ".join(name for name, x in before.items() if not torch.equal(x, after[name]))
