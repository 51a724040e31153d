"""Puts judged claims into words: verdicts, numbers with their sides, reasons, seeds and p values.

The Chinese names of data are in `templates/chinese_names.yaml`.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml

from normlab.claims.shown_number import more_or_less, shown_bounds, shown_estimate
from normlab.claims.side import SideValue, sides_text
from normlab.claims.verdict import Reason
from normlab.formats import MOST_DECIMALS, aligned, decimals_of, with_decimals

if TYPE_CHECKING:
    from normlab.claims.claim import Part
    from normlab.claims.decision import Decision
    from normlab.claims.ledger import JudgedClaim, JudgedPart

_LACKS_POWER = Reason("power")  # equals decision.POWER, which is not imported: it loads the records
_POWER = {"number": "power", "factor": "power_factor", "share": "power_time"}
"""The reason for a test that lacks power, by the form of its numbers."""


def verdict_text(judged_claim: "JudgedClaim") -> str:
    """Return the verdict with its grades, such as `contradicted (C: Multi30k, 2+2 layers)`."""
    details = "; ".join(filter(None, (judged_claim.counts, judged_claim.grades)))
    return f"{judged_claim.verdict} ({details})" if details else judged_claim.verdict


def part_text(part: "Part") -> str:
    """Return the statement of a part, with its note."""
    return f"{part.statement} ({part.note})" if part.note else part.statement


def chinese_part_text(part: "Part") -> str:
    """Return the statement of a part in Chinese, with its note."""
    return f"{part.chinese}（{part.chinese_note}）" if part.chinese_note else part.chinese


def part_verdict_text(judged_part: "JudgedPart") -> str:
    """Return the verdict on a part with its grade."""
    return (
        f"{judged_part.verdict} ({judged_part.grade})" if judged_part.grade else judged_part.verdict
    )


def value_text(judged_part: "JudgedPart") -> str:
    """Return the value with its interval, the values behind it and, if it is open, the reason."""
    value = result_text(judged_part)
    sides = "" if judged_part.decision.trained else sides_text(side_values(judged_part))
    text = f"{value} ({sides})" if value and sides else value or sides
    return "; ".join(filter(None, (text, str(reason_of(judged_part)))))


def result_text(judged_part: "JudgedPart") -> str:
    """Return what was found: a number with its interval, counts of seeds, or a text."""
    decision = judged_part.decision
    if decision.trained:
        return f"runs that trained: {sides_text(side_values(judged_part))}"
    if not (number := number_texts(decision)):
        return decision.finding
    if decision.form == "share":
        word, size = more_or_less(number)
        return f"{interval_text(size)} {word} time"
    text = interval_text(number)
    return f"factor {text}" if decision.form == "factor" else text


def number_texts(decision: "Decision") -> tuple[str, ...]:
    """Return the number with the ends of its interval, if any, or () if there is no number.

    It is the first side minus the second, or the first divided by the second.
    """
    if (estimate := shown_estimate(decision)) is None:
        return () if decision.same_value is None else tuple(aligned(decision.same_value))
    ends = (estimate.mean, estimate.low, estimate.high)
    if decision.form == "share":
        return tuple(map(_percent, ends))
    return aligned_interval(*ends, bounds=shown_bounds(decision))


def reason_of(judged_part: "JudgedPart") -> Reason | str:
    """Return why a part is open.

    If its test lacks power, the reason includes the smallest difference that it would detect.
    """
    reason, estimate = judged_part.reason, judged_part.decision.estimate
    if reason != _LACKS_POWER or estimate is None or estimate.smallest is None:
        return reason
    form, smallest = judged_part.decision.form, estimate.smallest
    text = _percent(smallest) if form == "share" else aligned(smallest)[0]
    return Reason(_POWER[form], {"smallest": text})


def _percent(share: float) -> str:
    return f"{100 * share:z.1f} %"


def side_values(judged_part: "JudgedPart") -> tuple[SideValue, ...]:
    """Return the values behind a decision, in the order of the sides in the statement."""
    decision, endpoint = judged_part.decision, judged_part.endpoint
    unit = " ms" if endpoint.unit == "time" else ""
    means = zip(decision.behind, _means(decision), strict=True)
    texts = {label: f"{text}{unit}" for label, text in means}
    texts |= {label: f"{train}/{n}" for label, (train, n) in decision.trained.items()}
    least = {label: _least(n) for label, (train, n) in decision.trained.items() if train == n}
    return tuple(
        SideValue(side.name, texts[side.label], least.get(side.label), side.condition)
        for side in endpoint.named_sides
        if side.label in texts
    )


def _means(decision: "Decision") -> list[str]:
    """Format the values behind a decision, with the digits to check the number by hand.

    Those of a ratio have three digits each, and others at least the decimals of their difference.
    """
    values = tuple(decision.behind.values())
    if decision.form != "number":
        return [aligned(value)[0] for value in values]
    texts, number = aligned(*values), number_texts(decision)
    if not number or any("e" in text for text in (*texts, *number)):
        return texts
    places = len(number[0].partition(".")[2])
    return with_decimals(values, max(places, decimals_of(*values)))


def _least(n: int) -> int:
    """Return the lower end, in %, of the 95 % interval of the share that trains if all `n` do."""
    return math.floor(100 * 0.025 ** (1 / n))  # Clopper and Pearson 1934


def interval_text(number: Sequence[str]) -> str:
    """Return a number with its interval, if it has one, such as `2.27 [1.09, 3.45]`."""
    mean, *ends = number
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def aligned_interval(
    mean: float, low: float, high: float, bounds: Sequence[float] = ()
) -> tuple[str, ...]:
    """Format a number and the ends of its interval with the same decimals.

    Decimals are added until no end rounds to a value in `bounds` from which it differs at
    `MOST_DECIMALS`. Three zeros need no decimals.
    """
    texts, decimals = aligned(mean, low, high), decimals_of(mean, low, high)
    is_settled = any("e" in text for text in texts) or not any(map(float, texts))
    while not is_settled and any(
        round(end, decimals) == round(bound, decimals)
        and round(end, MOST_DECIMALS) != round(bound, MOST_DECIMALS)
        for end in (low, high)
        for bound in bounds
    ):
        decimals += 1
        texts = with_decimals((mean, low, high), decimals)
    return tuple(texts)


def p_text(p: float | None) -> str:
    """Format a p value with three decimals or as `< 0.001`, or as a dash if nothing was tested."""
    if p is None:
        return "-"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def seeds_text(judged_part: "JudgedPart") -> str:
    """Return the number of seeds or rounds, and the confidence level of the interval."""
    basis, estimate = judged_part.basis, judged_part.decision.estimate
    if not basis.n:
        return ""
    text = f"{basis.n} {basis.repeats}{'s' if basis.n != 1 else ''}"
    return text if estimate is None else f"{text}, {100 * estimate.confidence:g} %"


def observed_p(judged_part: "JudgedPart") -> float | None:
    """Return the p value before correction, or None if there was no test."""
    p = judged_part.decision.p
    return None if p is None else p.observed


@cache
def _names() -> Mapping[str, str]:
    path = files("normlab.claims") / "templates" / "chinese_names.yaml"
    return yaml.safe_load(path.read_text("utf-8"))


def data_in_chinese(name: str) -> str:
    """Return the Chinese name of a study's data, or `name` itself if it is a proper name."""
    return _names().get(name, name)


def grade_in_chinese(judged_part: "JudgedPart") -> str:
    """Return the grade with its scope in Chinese, such as `C：Multi30k 德译英，2+2 层`."""
    if not judged_part.grade:
        return ""
    letter, scope = judged_part.basis.grade, judged_part.basis.scope
    data = data_in_chinese(scope.data)
    where = f"{data}，{' 到 '.join(scope.layers)} 层" if scope.layers else data
    return f"{letter}：{where}" if where else f"{letter}"
