"""Formats the verdict, value and seeds of a claim, for all places that show them.

The Chinese names of data are in `templates/chinese_names.yaml`.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml

from normlab.claims.side import sides_text

if TYPE_CHECKING:
    from normlab.claims.claim import Part
    from normlab.claims.ledger import JudgedClaim, JudgedPart


def verdict_text(judged_claim: "JudgedClaim") -> str:
    """Return the verdict with its grades, such as `contradicted (C: Multi30k, 2+2 layers)`."""
    details = "; ".join(filter(None, (judged_claim.counts, judged_claim.grades)))
    return f"{judged_claim.verdict} ({details})" if details else judged_claim.verdict


def part_text(part: "Part") -> str:
    """Return the statement of a part, with its note."""
    return f"{part.statement} ({part.note})" if part.note else part.statement


def part_verdict_text(judged_part: "JudgedPart") -> str:
    """Return the verdict on a part with its grade."""
    return (
        f"{judged_part.verdict} ({judged_part.grade})" if judged_part.grade else judged_part.verdict
    )


def value_text(judged_part: "JudgedPart") -> str:
    """Return the value with its interval, the values behind it and, if it is open, the reason."""
    decision = judged_part.decision
    value, sides = decision.value, "" if decision.counted else sides_text(decision.sides)
    text = f"{value} ({sides})" if value and sides else value or sides
    return "; ".join(filter(None, (text, str(judged_part.reason))))


def seeds_text(judged_part: "JudgedPart") -> str:
    """Return the number of seeds or rounds, and the confidence of the interval."""
    basis, estimate = judged_part.basis, judged_part.decision.estimate
    if not basis.n:
        return ""
    text = f"{basis.n} {basis.repeats}{'s' if basis.n != 1 else ''}"
    return text if estimate is None else f"{text}, {100 * estimate.confidence:g} %"


def observed_p(judged_part: "JudgedPart") -> float | None:
    """Return the p value before correction, or None without a test."""
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
