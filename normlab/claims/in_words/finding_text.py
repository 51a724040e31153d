"""Formats what was found on a part of a claim as a sentence in either language.

For runs and timings, the ledger has the values, and `templates/finding.en.txt` and `finding.zh.txt`
have the sentences. The findings of checks and sources are in the ledger, but only in English. Their
Chinese is in `normlab.articles.checks_in_chinese`, and in `chinese:` of a claim's `published:`.
"""

from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from normlab.claims.in_words.language import Locale, ScoreName
from normlab.claims.ledger_file import SavedPart
from normlab.claims.side import sides_text
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
    values = {
        "score": language.score_name(part.scores[0]) if part.scores else ScoreName(""),
        "unit": part.unit,
        "number": [language.signed(text) for text in part.number],
        "sides": sides_text(
            [structs.replace(side, value=language.signed(side.value)) for side in part.sides],
            chinese=language.choose(True, False),
        ),
        "counted": part.counted,
        "limits": _limits(part),
        "inside": part.verdict == "no difference",
        "reason": part.reason.text(language.code) if part.reason else "",
    }
    return _templates().get_template(f"finding.{language.code}.txt").render(values)


@cache
def _templates() -> "Environment":
    """Return the environment of the sentences. It keeps each template once it is compiled."""
    return environment("normlab.claims.in_words")


def facts_text(part: SavedPart, language: Locale) -> str:
    """Return what was found and how it was tested, or "" if nothing was found."""
    if not (finding := finding_text(part, language)):
        return ""
    tested = language.phrasing.tested.format(test=part.test, n=part.n)
    return language.phrasing.between.join(filter(None, [finding, tested])).rstrip(".")


def grade_text(part: SavedPart, language: Locale) -> str:
    """Return the grade of the evidence with its setting, or "" if it has no grade."""
    return language.choose(*part.grades) if part.grades else ""


def _limits(part: SavedPart) -> str:
    """Return limits such as `±0.5`, or `0.8–1.25` for a factor, or "" if there are none."""
    if not part.limits or part.low is None:
        return ""
    low, high = part.limits
    digits = "{:.0%}".format if part.unit == "time saved" else "{:g}".format
    return f"\u00b1{digits(high)}" if low == -high else f"{digits(low)}\u2013{digits(high)}"
