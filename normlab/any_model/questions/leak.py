"""Makes the finding on passes whose outputs should agree."""

import math
from collections.abc import Mapping

import torch

from normlab.any_model.questions.culprit import Cause, locate
from normlab.any_model.questions.examination import (
    BLIND,
    LEAK,
    TABLES,
    Examination,
    Moved,
    PassPair,
)
from normlab.findings.finding import Finding
from normlab.findings.relative_change import Oddity, percent

ODDITIES: dict[Oddity, str] = {
    "became NaN": "becomes NaN",
    "was NaN": "is NaN before the change, but a number after it",
    "became infinite": "becomes infinite",
    "was infinite": "is infinite before the change, but finite after it",
    "was 0": "is 0 before the change, but not after it (a change relative to 0 has no size)",
}
HARM = 1e-3
"""The relative change above which a leak is called broken."""


def size(value: float) -> str:
    """Format a relative change: in percent if it is large, otherwise as a power of ten."""
    if value in (0, HARM):
        return f"{100 * value:g} %" if value else "0"
    return percent(value) if value >= 1e-4 else f"{value:.0e}".replace("e-0", "e-")


def moves(about: Examination, each: Moved, value: float) -> str:
    """Say how much an output changes; name the output if there are several."""
    name = f" {each.output}" * (len(about.compared) > 1)
    return f"the output{name} {by_how_much(value, each.oddity)}"


def by_how_much(value: float, oddity: Oddity = "") -> str:
    """Say how much something changes or, if that is not a finite number, why."""
    return ODDITIES[oddity] if oddity and math.isinf(value) else f"changes by {size(value)}"


def leak(
    about: Examination,
    movements: Mapping[str, Moved],
    comparisons: Mapping[str, PassPair],
    cause: Cause,
    how: str,
    *,
    unusual: str = "",
) -> Finding:
    """Return the finding on passes that should agree, and the module at fault.

    `movements` are the changes by comparison, `cause` is what the output should not depend on, and
    `how` says what was compared. `unusual` names the comparison with unusual values under the
    padding, which counts only if the usual values change the output too. The module is the one
    behind the largest change; no module is looked for if that comparison is not in `comparisons`,
    as it was made with another setting.
    """
    worst = max(movements, key=lambda name: movements[name].wide)
    value = movements[worst].wide
    tables = cause == "padding" and about.example.side == "left"
    limit = BLIND if about.blind else TABLES if tables else LEAK
    values = {name: vars(each) for name, each in movements.items()}
    if value <= limit:
        return _rounding(about, movements, limit, how)
    broken, under = value > HARM, ""
    if worst == unusual:
        usual = any(each.wide > HARM for name, each in movements.items() if name != unusual)
        # if only one length works, the usual values are the base, so the batch decides
        broken = broken and (usual or (len(movements) == 1 and about.example.has_padding))
        under = "" if usual else ", with unusual values under the padding"
    path, sentence = None, "no module was looked for"
    if worst in comparisons:
        path, sentence = locate(about, comparisons[worst], movements[worst].output, cause)
    limit = HARM if broken else limit
    text = f"{moves(about, movements[worst], value)} (limit {size(limit)}) for {worst}{under}"
    return Finding(
        f"{text}; {sentence}. {how}{_narrowed(about)}",
        values,
        verdict="broken" if broken else "look",
        value=value,
        threshold=limit,
        module=path,
    )


def _narrowed(about: Examination) -> str:
    """Say which operations do not support float64; empty if all do."""
    if not about.narrowed:
        return ""
    return f". Not in float64: {', '.join([*about.narrowed][:3])}, so the limit is float32's"


def _rounding(
    about: Examination, movements: Mapping[str, Moved], limit: float, how: str
) -> Finding:
    """Return the finding on changes that vanish in float64."""
    name = max(movements, key=lambda each: movements[each].narrow)
    most, values = movements[name], {name: vars(each) for name, each in movements.items()}
    if most.narrow > about.rounding:
        return Finding(
            f"{moves(about, most, most.narrow)} for {name} in {about.dtype}, but not in float64: "
            f"that is too much for rounding (at most {size(about.rounding)}). {how}",
            values,
            verdict="broken" if about.torch_dtype == torch.float32 else "look",
            value=most.narrow,
            threshold=about.rounding,
        )
    value = max(each.wide for each in movements.values())
    at = f" and changes the argmax at {percent(most.argmax)} of positions" * bool(most.argmax)
    where = "a leak this small is visible only in float64" if about.blind else "no leak"
    text = f"{where}: {size(value)} (limit {size(limit)}); {about.dtype} rounding changes the "
    text += f"output by {size(most.narrow)}{at}. {how}{_narrowed(about)}"
    return Finding(text, values, verdict="fine", value=value, threshold=limit)
