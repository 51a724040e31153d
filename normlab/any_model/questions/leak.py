"""The finding on passes whose outputs should agree: a leak, a fault in the dtype, or rounding.

A leak is a change of the output in float64, where rounding changes it by about 1e-14. Its verdict
is `broken` above `HARM`, and `look` below. `decide` uses only the measured changes. `leak_finding`
then searches for the module at fault, and puts the decision and the module into words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from normlab.any_model.questions.culprit import Cause, Culprit, culprit_in_words, locate
from normlab.any_model.questions.examination import (
    LEAK,
    LEAK_IN_FLOAT32,
    ROUNDED_CONSTANTS,
    Examination,
    OutputChange,
    PassPair,
)
from normlab.any_model.questions.wording import by_how_much, size
from normlab.findings.finding import Finding
from normlab.findings.relative_change import percent
from normlab.findings.summary import Verdict

HARM = 1e-3
"""The relative change above which a leak is called broken."""


@dataclass(frozen=True)
class Rounding:
    """The largest changes that rounding can cause, in float64 and in the model's dtype."""

    in_float64: float
    in_model_dtype: float
    dtype: torch.dtype


@dataclass(frozen=True)
class LeakDecision:
    """What explains the changes between passes that should agree.

    `kind` is `leak` if the outputs differ in float64, `dtype` if they differ only in the model's
    dtype but by more than rounding can cause, and `rounding` otherwise. `comparison` names the
    comparison with the largest change, which is taken in float64 for a leak and in the model's
    dtype otherwise. `only_unusual` is whether only unusual values under the padding cause the leak.
    """

    kind: Literal["leak", "dtype", "rounding"]
    verdict: Verdict
    comparison: str
    value: float
    threshold: float
    only_unusual: bool = False


def decide(
    changes: Mapping[str, OutputChange],
    rounding: Rounding,
    *,
    unusual: str | None = None,
    has_padding: bool = False,
) -> LeakDecision:
    """Decide whether a leak, a fault in the model's dtype or rounding explains the changes.

    `unusual` names the comparison in which the padding has values that it usually does not have. If
    its change is the largest, the verdict is `broken` only if usual values also change the output.
    If no usual values could be compared, because the model accepts only one length, the verdict is
    `broken` only if the batch has padding.
    """
    in_float64 = {name: change.in_float64 for name, change in changes.items()}
    worst = max(in_float64, key=lambda name: in_float64[name])
    value = in_float64[worst]
    if value <= rounding.in_float64:
        return _without_leak(changes, value, rounding)
    broken, only_unusual = value > HARM, False
    if worst == unusual:
        usual = [change for name, change in in_float64.items() if name != unusual]
        only_unusual = max(usual, default=0.0) <= HARM
        broken = broken and (not only_unusual or (not usual and has_padding))
    verdict, threshold = ("broken", HARM) if broken else ("look", rounding.in_float64)
    return LeakDecision("leak", verdict, worst, value, threshold, only_unusual)


def _without_leak(
    changes: Mapping[str, OutputChange], in_float64: float, rounding: Rounding
) -> LeakDecision:
    """Decide whether rounding explains the changes, the largest of which in float64 is given."""
    most = max(changes, key=lambda name: changes[name].in_model_dtype)
    value = changes[most].in_model_dtype
    if value <= rounding.in_model_dtype:
        return LeakDecision("rounding", "fine", most, in_float64, rounding.in_float64)
    verdict = "broken" if rounding.dtype == torch.float32 else "look"
    return LeakDecision("dtype", verdict, most, value, rounding.in_model_dtype)


def leak_finding(
    examination: Examination,
    changes: Mapping[str, OutputChange],
    comparisons: Mapping[str, PassPair],
    cause: Cause,
    how: str,
) -> Finding:
    """Return the finding on passes that should agree, including the module at fault.

    `changes` has the change in each comparison, `cause` is what the output should not depend on,
    and `how` describes what was compared. The module is searched for in the comparison with the
    largest change, unless `comparisons` lacks it because the model was run with another setting.
    """
    decision = decide(
        changes,
        Rounding(
            _float64_rounding(examination, cause), examination.rounding, examination.torch_dtype
        ),
        unusual=next((name for name, pair in comparisons.items() if pair.unusual), None),
        has_padding=examination.example.has_padding,
    )
    change, pair = changes[decision.comparison], comparisons.get(decision.comparison)
    culprit = locate(examination, pair, change.output) if decision.kind == "leak" and pair else None
    if decision.kind == "leak":
        text = _leak_in_words(examination, decision, change, culprit, cause)
    elif decision.kind == "dtype":
        text = _dtype_in_words(examination, decision, change)
    else:
        text = _rounding_in_words(examination, decision, change)
    after = "" if decision.kind == "dtype" else _without_float64(examination)
    return Finding(
        f"{text}. {how}{after}",
        {name: vars(change) for name, change in changes.items()},
        verdict=decision.verdict,
        value=decision.value,
        threshold=decision.threshold,
        module=culprit.path if culprit else None,
    )


def _float64_rounding(examination: Examination, cause: Cause) -> float:
    """Return the largest change that rounding can cause in float64, or in float32 instead of it."""
    if examination.lacks_float64:
        return LEAK_IN_FLOAT32
    return ROUNDED_CONSTANTS if cause == "padding" and examination.example.side == "left" else LEAK


def _leak_in_words(
    examination: Examination,
    decision: LeakDecision,
    change: OutputChange,
    culprit: Culprit | None,
    cause: Cause,
) -> str:
    unusual = ", with unusual values under the padding" * decision.only_unusual
    module = culprit_in_words(culprit, cause) if culprit else "no module was looked for"
    return (
        f"{change_in_words(examination, change, decision.value)} (limit "
        f"{size(decision.threshold)}) for {decision.comparison}{unusual}; {module}"
    )


def _dtype_in_words(examination: Examination, decision: LeakDecision, change: OutputChange) -> str:
    return (
        f"{change_in_words(examination, change, decision.value)} for {decision.comparison} in "
        f"{examination.dtype}, but not in float64; this is too much for rounding (at most "
        f"{size(decision.threshold)})"
    )


def _rounding_in_words(
    examination: Examination, decision: LeakDecision, change: OutputChange
) -> str:
    at = f" and changes the argmax at {percent(change.argmax)} of positions" * bool(change.argmax)
    unseen = "a leak this small is visible only in float64"
    leak = unseen if examination.lacks_float64 else "no leak"
    return (
        f"{leak}: {size(decision.value)} (limit {size(decision.threshold)}); {examination.dtype} "
        f"rounding changes the output by {size(change.in_model_dtype)}{at}"
    )


def change_in_words(examination: Examination, change: OutputChange, value: float) -> str:
    """Describe how much an output changes, with its name if several outputs are compared."""
    name = f" {change.output}" * (len(examination.compared) > 1)
    return f"the output{name} {by_how_much(value, change.non_finite)}"


def _without_float64(examination: Examination) -> str:
    """Return a sentence about operations that do not support float64, or "" if all do."""
    names = [*examination.without_float64][:3]
    return f". Not in float64: {', '.join(names)}, so the limit is float32's" if names else ""
