"""The finding on passes whose outputs should agree: rounding, a leak, or a fault.

A leak is a change of the output in float64, where rounding is about 1e-14. It is `broken` above
`HARM`, and worth a `look` below.
"""

from collections.abc import Mapping

import torch

from normlab.any_model.questions.culprit import Cause, Culprit, culprit_in_words, locate
from normlab.any_model.questions.examination import (
    BLIND,
    LEAK,
    ROUNDED_CONSTANTS,
    Examination,
    OutputChange,
    PassPair,
)
from normlab.any_model.questions.wording import by_how_much, size
from normlab.findings.finding import Finding
from normlab.findings.relative_change import percent

HARM = 1e-3
"""The relative change above which a leak is called broken."""


def leak_finding(
    examination: Examination,
    changes: Mapping[str, OutputChange],
    comparisons: Mapping[str, PassPair],
    cause: Cause,
    how: str,
) -> Finding:
    """Return the finding on passes that should agree, and the module at fault.

    `changes` are the changes by comparison, `cause` is what the output should not depend on, and
    `how` says what was compared. A change by unusual values under the padding is broken only if
    the usual values change the output too. The module is the one behind the largest change; no
    module is searched for if that comparison is not in `comparisons`, because it was made with
    another setting.
    """
    name = max(changes, key=lambda name: changes[name].in_float64)
    worst, pair = changes[name], comparisons.get(name)
    limit = _limit(examination, cause)
    if worst.in_float64 <= limit:
        return _rounding(examination, changes, limit, how)
    broken, only_unusual = worst.in_float64 > HARM, False
    if pair and pair.unusual:
        usual = [change.in_float64 for other, change in changes.items() if other != name]
        only_unusual = max(usual, default=0.0) <= HARM
        # if only one length works, the usual values are the base, so the batch decides
        only_length = not usual and examination.example.has_padding
        broken = broken and (not only_unusual or only_length)
    culprit = locate(examination, pair, worst.output) if pair else None
    limit = HARM if broken else limit
    return Finding(
        f"{change_in_words(examination, worst, worst.in_float64)} (limit {size(limit)}) for {name}"
        f"{', with unusual values under the padding' * only_unusual}; "
        f"{_module_in_words(culprit, cause)}. {how}{_without_float64(examination)}",
        {name: vars(change) for name, change in changes.items()},
        verdict="broken" if broken else "look",
        value=worst.in_float64,
        threshold=limit,
        module=culprit.path if culprit else None,
    )


def _limit(examination: Examination, cause: Cause) -> float:
    """Return the largest change in float64, where it can be used, that can be rounding."""
    if examination.blind:
        return BLIND
    return ROUNDED_CONSTANTS if cause == "padding" and examination.example.side == "left" else LEAK


def _rounding(
    examination: Examination, changes: Mapping[str, OutputChange], limit: float, how: str
) -> Finding:
    """Return the finding on changes that vanish in float64."""
    name = max(changes, key=lambda name: changes[name].in_model_dtype)
    most, values = changes[name], {name: vars(change) for name, change in changes.items()}
    if most.in_model_dtype > examination.rounding:
        return Finding(
            f"{change_in_words(examination, most, most.in_model_dtype)} for {name} in "
            f"{examination.dtype}, but not in float64, which is too much for rounding (at most "
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


def change_in_words(examination: Examination, change: OutputChange, value: float) -> str:
    """Describe how much an output changes. If there are several outputs, include its name."""
    name = f" {change.output}" * (len(examination.compared) > 1)
    return f"the output{name} {by_how_much(value, change.non_finite)}"


def _module_in_words(culprit: Culprit | None, cause: Cause) -> str:
    return culprit_in_words(culprit, cause) if culprit else "no module was looked for"


def _without_float64(examination: Examination) -> str:
    """Return a sentence about operations that do not support float64, or "" if all do."""
    names = [*examination.without_float64][:3]
    return f". Not in float64: {', '.join(names)}, so the limit is float32's" if names else ""
