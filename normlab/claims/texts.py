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


def verdict_text(entry: "JudgedClaim") -> str:
    """Return the verdict with its grades, such as `contradicted (C: Multi30k, 2+2 layers)`."""
    details = "; ".join(filter(None, (entry.counts, entry.grades)))
    return f"{entry.verdict} ({details})" if details else entry.verdict


def part_text(part: "Part") -> str:
    """Return the statement of a part, with its note."""
    return f"{part.statement} ({part.note})" if part.note else part.statement


def outcome_text(outcome: "JudgedPart") -> str:
    """Return the verdict of an endpoint with its grade."""
    return f"{outcome.verdict} ({outcome.grade})" if outcome.grade else outcome.verdict


def value_text(outcome: "JudgedPart") -> str:
    """Return the value with its interval, the values behind it and, if it is open, the reason."""
    decision = outcome.decision
    value, sides = decision.value, "" if decision.counted else sides_text(decision.sides)
    text = f"{value} ({sides})" if value and sides else value or sides
    return "; ".join(filter(None, (text, str(outcome.reason))))


def seeds_text(outcome: "JudgedPart") -> str:
    """Return the number of seeds or rounds, and the confidence of the interval."""
    basis, estimate = outcome.basis, outcome.decision.estimate
    if not basis.n:
        return ""
    text = f"{basis.n} {basis.repeats}{'s' if basis.n != 1 else ''}"
    return text if estimate is None else f"{text}, {100 * estimate.confidence:g} %"


def observed_p(outcome: "JudgedPart") -> float | None:
    """Return the p value before correction, or None without a test."""
    p = outcome.decision.p
    return None if p is None else p.observed


@cache
def _names() -> Mapping[str, str]:
    path = files("normlab.claims") / "templates" / "chinese_names.yaml"
    return yaml.safe_load(path.read_text("utf-8"))


def data_in_chinese(name: str) -> str:
    """Return the Chinese name of a study's data, or `name` itself if it is a proper name."""
    return _names().get(name, name)


def grade_in_chinese(outcome: "JudgedPart") -> str:
    """Return the grade with its setting in Chinese, such as `C：Multi30k 德译英，2+2 层`."""
    if not outcome.grade:
        return ""
    letter, setting = outcome.basis.grade, outcome.basis.setting
    data = data_in_chinese(setting.data)
    where = f"{data}，{' 到 '.join(setting.layers)} 层" if setting.layers else data
    return f"{letter}：{where}" if where else f"{letter}"
