"""The norm contract: what the rest of the package assumes about every norm.

`normlab norm check` asks these questions, and the tests ask them about every option of
`configs/norm`. `contract_measures.py` measures, and this file says what must be true and what to do
if it is not.
"""

import inspect
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.inspection.norm import contract_measures as measures
from normlab.inspection.norm.bare_norm import BareNorm
from normlab.inspection.questions import questions
from normlab.norms.axes import AXES, axes_in_words, in_order
from normlab.norms.fast import FAST, agrees
from normlab.norms.layer import TokenNorm
from normlab.norms.running import RunningNorm

BATCH, POSITION, FEATURE = AXES
# the largest difference between training and eval after settling, relative to the largest output
_SETTLED = 0.01


class Broken(Exception):
    """A violation of the norm contract. The message says what is wrong and how to fix it."""


def require(holds: object, otherwise: str) -> None:
    """Raise `Broken` with the message `otherwise` unless `holds` is true."""
    if not holds:
        raise Broken(otherwise)


def examine(norm: BareNorm) -> Iterator[tuple[str, Finding]]:
    """Yield the name and the finding of each question of the contract.

    The finding is `broken` if the question raises `Broken` or any other error.
    """
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
    for output in measures.outputs_by_shape(norm):
        expected, shape = (" x ".join(map(str, s)) for s in (output.input_shape, output.shape))
        sequences, tokens, _ = output.input_shape
        require(expected == shape, f"returns shape {shape} for an input of shape {expected}")
        require(output.input_unchanged, "modifies its input, which the residual connection reads")
        require(output.finite, f"returns NaN or infinity for {sequences} x {tokens} tokens")
    for value, finite in measures.finite_for_constants(norm):
        require(finite, f"returns NaN or infinity if every value is {value:g}; bound its divisor")
    return "the output is finite and has the input's shape; the input is unchanged"


@question("precision", of="norm")
def precision(norm: BareNorm) -> str:
    """Does the output have the input's dtype, and are statistics accurate under bf16?

    The norm is also run in eval after its weights and tables were converted to that dtype.
    """
    for dtype, returned in measures.output_dtypes(norm):
        require(
            returned == dtype, f"returns {returned} for {dtype}; end `forward` with `.to(x.dtype)`"
        )
    under_bf16 = measures.under_bf16(norm)
    require(
        under_bf16.accurate,
        "statistics of bf16 values with mean 300 are inaccurate; compute them in float32, from "
        "`widen(x)` of normlab/norms/moments.py",
    )
    require(
        not under_bf16.other_tables,
        f"keeps {', '.join(under_bf16.other_tables)} in a dtype other than float32",
    )
    return "the output has the input's dtype; statistics are in float32 under bf16"


@question("pools", of="norm")
def pools(norm: BareNorm) -> str:
    """Does the norm pool over the axes that it declares, before and after training?"""
    bare = norm.new()
    declared, affecting = set(bare.pools), measures.affecting_axes(norm)
    remembered = {BATCH, POSITION} if isinstance(bare, RunningNorm) else set()
    beyond, without = affecting - declared, declared - affecting - remembered
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
    for mode, changed, leaked in measures.changes_by_padding(norm):
        require(
            not changed,
            f"in {mode} padding changes the {' and '.join(changed)} of real tokens: use "
            "`tokens.real(x)` (`tokens.valid` is None without padding)",
        )
        require(not leaked, f"in {mode} a gradient flows into padding")
    return "outputs, gradients and statistics are the same with and without padding"


@question("independent", of="norm")
def independent(norm: BareNorm) -> str:
    """In eval, does an output depend on the batch and on the whole sequence as declared?"""
    bare, depends = norm.new(), measures.dependence_on_others_in_eval(norm)
    flags = {
        "batch_independent": ("alone", bare.batch_independent, depends.alone),
        "incremental": ("token by token", bare.incremental, depends.token_by_token),
    }
    for flag, (how, declared, differs) in flags.items():
        require(
            differs != declared,
            f"`{flag}` is {declared}, but in eval a sequence has "
            f"{'a different' if differs else 'the same'} output {how}: declare `pools`, use "
            "RunningNorm for running statistics, and count positions from `tokens.start`",
        )
    parts = [f"{'the same' if yes else 'different'} {how}" for how, yes, _ in flags.values()]
    return f"in eval a sequence's output is {' and '.join(parts)}, as declared"


@question("gradient", of="norm")
def gradient(norm: BareNorm) -> str:
    """Do the input and all parameters get a finite gradient, which is exact if declared to be?"""
    gradients = measures.gradients_by_name(norm)
    idle = _listed(name for name, gradient in gradients.items() if gradient is None)
    require(
        not idle,
        f"no gradient reaches {idle}; pass scale=False or shift=False to `super().__init__`, or "
        "use it in `forward`",
    )
    for name, gradient in gradients.items():
        finite = gradient is not None and gradient.isfinite().all()
        require(finite, f"the gradient of {name} is not finite")
    reached = f"a finite gradient reaches {_listed(gradients)}"
    if not norm.new().exact_gradient:
        return f"{reached}; it declares exact_gradient=False"
    require(
        measures.has_exact_gradient(norm),
        "the backward pass is not exact; if this is intended, declare exact_gradient = False",
    )
    return f"{reached}, and it is exact"


@question("formula", of="norm")
def formula(norm: BareNorm) -> str | Finding:
    """Is the norm's `formula` used both in training and in eval?

    With momentum 1, the running statistics equal the batch's, so the output in eval must equal the
    output in training. A norm that trains with a different formula must get there after enough
    steps on one batch. If the formula is replaced, both outputs must change.
    """
    kind = type(norm.new())
    if getattr(kind, "formula", TokenNorm.formula) is TokenNorm.formula:
        return Finding.none("it has no `formula`")
    x = norm.values(4, 6)
    if issubclass(kind, RunningNorm) and kind.same_in_training:
        outputs = measures.outputs_in_both_modes(norm, x)
        require(
            outputs.training.allclose(outputs.in_eval, rtol=1e-9, atol=1e-9),
            "with momentum 1 a batch has a different output in eval than in training: use one "
            "`formula` in both, or declare same_in_training = False",
        )
    elif issubclass(kind, RunningNorm):
        training, in_eval = measures.settled_outputs(norm, x)
        difference = float((training - in_eval).abs().max() / in_eval.abs().max())
        require(
            difference < _SETTLED,
            f"after {measures.STEPS_TO_SETTLE} steps on one batch, whose statistics are then the "
            f"running ones, training and eval differ by {difference:.0%}: `training_formula` and "
            "`formula` contradict each other",
        )
    for mode, used in measures.formula_use(norm, x)._asdict().items():
        require(used, f"a changed `formula` does not change the output in {mode}; use it there")
    runs = "the formula is used in training and in eval"
    if kind not in FAST:
        return runs
    if agrees(norm.new()):
        return f"{runs}, or a kernel that equals it where both were compared"
    return (
        f"{runs}; its kernel in normlab/norms/fast.py computes a different one and is not used; "
        "for speed, also change the kernel"
    )


@question("saved", of="norm")
def saved(norm: BareNorm) -> str:
    """Does eval leave the state unchanged, and does a saved norm resume training bit for bit?"""
    changed = measures.changed_by_eval(norm)
    require(not changed, f"a forward pass in eval changes {_listed(changed)}")
    for resumed in measures.resumed(norm):
        at = f"saved after step {resumed.saved_after} and loaded,"
        require(
            resumed.step is None,
            f"{at} its output or gradient differs at step {resumed.step}: its state must be in "
            "buffers (`register_buffer`)",
        )
        require(not resumed.tensors, f"{at} {_listed(resumed.tensors)} differ")
        require(not resumed.in_eval, f"{at} its output in eval differs")
    return "eval changes nothing; training resumes bit for bit from the saved state"


@question("running", of="norm")
def running(norm: BareNorm) -> str | Finding:
    """Can running statistics be bypassed, recalibrated and restored?"""
    if not isinstance(norm.new(), RunningNorm):
        return Finding.none("it keeps no running statistics")
    changed = measures.effects_on_statistics(norm)
    require(
        not changed.by_bypass,
        f"a forward pass in eval with batch statistics changes {_listed(changed.by_bypass)}",
    )
    require(
        changed.by_recalibration,
        "recalibration changes nothing: pass the batch's moments to `self.remember` unless "
        "`self.regime` is running, and update the tables in `enter`",
    )
    require(
        not changed.not_restored,
        f"recalibration does not restore {_listed(changed.not_restored)}",
    )
    return "running statistics can be bypassed, recalibrated and restored"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
