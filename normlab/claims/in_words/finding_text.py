"""Formats what was found on a part of a claim as a sentence in either language.

For runs and timings, the ledger has the values, and `templates/finding.en.txt` and `finding.zh.txt`
have the sentences. The findings of checks and sources are in the ledger, but only in English. Their
Chinese is in `normlab.articles.checks_in_chinese`, and in `chinese:` of a claim's `published:`.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from normlab.claims.in_words.language import Locale, ScoreName
from normlab.claims.ledger_file import SavedPart
from normlab.claims.shown_number import more_or_less
from normlab.claims.side import sides_text, spaced
from normlab.templates import environment

if TYPE_CHECKING:
    from jinja2 import Environment


def finding_text(part: SavedPart, language: Locale) -> str:
    """Return what was found in one line.

    Returns "" if nothing was found, or if the ledger has the text only in English.
    """
    if not part.measured:
        return ""
    if not part.scores and not part.limits:
        return language.choose("", part.finding)
    score = part.scores[0] if part.scores else ""
    sides = [structs.replace(side, value=language.number(side.value)) for side in part.sides]
    values = {
        "score": language.score_name(score, part.minus) if score else ScoreName(""),
        "unit": part.unit,
        "number": list(map(language.number, part.number)),
        "sides": sides_text(sides, chinese=language.choose(True, False)),
        "time": _time(part, language) if part.unit == "time" and part.number else None,
        "counted": part.counted,
        "limits": _limits(part, language),
        "inside": part.verdict == "no difference",
        "reason": _reason(part, language),
    }
    return _templates().get_template(f"finding.{language.code}.txt").render(values)


def _time(part: SavedPart, language: Locale) -> Mapping[str, object]:
    """Return by how much the first side takes more or less time than the second."""
    way, size = more_or_less(part.number)
    first, second = (language.choose(*side.name) for side in part.sides)
    medians = [side.value for side in part.sides]
    size = [language.number(text) for text in size]
    return {"first": first, "second": second, "way": way, "size": size, "medians": medians}


def _reason(part: SavedPart, language: Locale) -> str:
    """Return why a part is open, or "" if it is decided."""
    if part.reason is None:
        return ""
    score = part.reason.values.get("score", "")
    name = str(language.score_name(score)) if score else ""
    return language.number(part.reason.text(language.code, name))


@cache
def _templates() -> "Environment":
    """Return the environment of the sentences. It keeps each template once it is compiled."""
    jinja = environment("normlab.claims.in_words")
    jinja.filters["spaced"] = spaced
    return jinja


def facts_text(part: SavedPart, language: Locale) -> str:
    """Return what was found and how it was tested, or "" if nothing was found."""
    if not (finding := finding_text(part, language)):
        return ""
    tested = language.phrasing.tested.format(test=part.test, n=part.n)
    return language.phrasing.between.join(filter(None, [finding, tested])).rstrip(".")


def grade_text(part: SavedPart, language: Locale) -> str:
    """Return the grade of the evidence with its setting, or "" if it has no grade."""
    return language.choose(*part.grades) if part.grades else ""


def _limits(part: SavedPart, language: Locale) -> str:
    """Return limits such as `±0.5`, or `0.8–1.25` for a factor, or "" if there are none."""
    if not part.limits or part.low is None:
        return ""
    is_share = part.unit == "time"
    low, high = (f"{100 * x:.0f} %" if is_share else f"{x:g}" for x in part.limits)
    if low == f"-{high}" or high == "0" == low:
        return f"\u00b1{language.number(high)}"
    return f"{language.number(low)}\u2013{language.number(high)}"
