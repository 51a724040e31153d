"""The finding on passes whose outputs should agree."""

from collections.abc import Mapping

import torch

from normlab.any_model.questions.culprit import Cause, locate
from normlab.any_model.questions.examination import (
    BLIND,
    LEAK,
    TABLES,
    Examination,
    OutputChange,
    PassPair,
)
from normlab.any_model.questions.wording import by_how_much, size
from normlab.findings.finding import Finding
from normlab.findings.relative_change import percent

HARM = 1e-3
"""The relative change above which a leak is called broken."""


def in_words(examination: Examination, change: OutputChange, value: float) -> str:
    """Say how much an output changes; name the output if there are several."""
    name = f" {change.output}" * (len(examination.compared) > 1)
    return f"the output{name} {by_how_much(value, change.non_finite)}"


def leak_finding(
    examination: Examination,
    changes: Mapping[str, OutputChange],
    comparisons: Mapping[str, PassPair],
    cause: Cause,
    how: str,
    *,
    unusual: str = "",
) -> Finding:
    """Return the finding on passes that should agree, and the module at fault.

    `changes` are the changes by comparison, `cause` is what the output should not depend on, and
    `how` says what was compared. `unusual` names the comparison with unusual values under the
    padding, which counts only if the usual values change the output too. The module is the one
    behind the largest change; no module is searched for if that comparison is not in `comparisons`,
    because it was made with another setting.
    """
    worst = max(changes, key=lambda name: changes[name].in_float64)
    value = changes[worst].in_float64
    tables = cause == "padding" and examination.example.side == "left"
    limit = BLIND if examination.blind else TABLES if tables else LEAK
    values = {name: vars(change) for name, change in changes.items()}
    if value <= limit:
        return _rounding(examination, changes, limit, how)
    broken, under = value > HARM, ""
    if worst == unusual:
        usual = any(x.in_float64 > HARM for name, x in changes.items() if name != unusual)
        # if only one length works, the usual values are the base, so the batch decides
        broken = broken and (usual or (len(changes) == 1 and examination.example.has_padding))
        under = "" if usual else ", with unusual values under the padding"
    path, sentence = None, "no module was looked for"
    if worst in comparisons:
        path, sentence = locate(examination, comparisons[worst], changes[worst].output, cause)
    limit = HARM if broken else limit
    change = in_words(examination, changes[worst], value)
    text = f"{change} (limit {size(limit)}) for {worst}{under}"
    return Finding(
        f"{text}; {sentence}. {how}{_without_float64(examination)}",
        values,
        verdict="broken" if broken else "look",
        value=value,
        threshold=limit,
        module=path,
    )


def _without_float64(examination: Examination) -> str:
    """Say which operations do not support float64; empty if all do."""
    names = [*examination.without_float64][:3]
    return f". Not in float64: {', '.join(names)}, so the limit is float32's" if names else ""


def _rounding(
    examination: Examination, changes: Mapping[str, OutputChange], limit: float, how: str
) -> Finding:
    """Return the finding on changes that vanish in float64."""
    name = max(changes, key=lambda name: changes[name].in_model_dtype)
    most, values = changes[name], {name: vars(change) for name, change in changes.items()}
    if most.in_model_dtype > examination.rounding:
        return Finding(
            f"{in_words(examination, most, most.in_model_dtype)} for {name} in "
            f"{examination.dtype}, but not in float64: that is too much for rounding (at most "
            f"{size(examination.rounding)}). {how}",
            values,
            verdict="broken" if examination.torch_dtype == torch.float32 else "look",
            value=most.in_model_dtype,
            threshold=examination.rounding,
        )
    value = max(change.in_float64 for change in changes.values())
    at = f" and changes the argmax at {percent(most.argmax)} of positions" * bool(most.argmax)
    where = "a leak this small is visible only in float64" if examination.blind else "no leak"
    text = f"{where}: {size(value)} (limit {size(limit)}); {examination.dtype} rounding changes "
    text += f"the output by {size(most.in_model_dtype)}{at}. {how}{_without_float64(examination)}"
    return Finding(text, values, verdict="fine", value=value, threshold=limit)
