"""The explanations that open below a sentence or cell on the interactive page, by source.

Each explanation has its statement in Chinese and in English, what was found, and how we know.
The kinds of evidence make their explanations (`evidence_kinds/`), `page_data.py` puts them into the
page's data, and `reading.js` draws them.
"""

from collections.abc import Callable

from msgspec import Struct

from normlab.claims.in_words.language import CHINESE, ENGLISH, Locale

Pair = tuple[str, ...]
"""A text in Chinese and in English, or a single text if both are the same."""


class OfClaim(Struct, frozen=True, kw_only=True):
    """An explanation of a statement. `claim` is the claim that it belongs to, if there is one."""

    statement: Pair
    claim: int | None = None


class NotTested(OfClaim, frozen=True, kw_only=True, tag="not measured"):
    """A part that was not tested. `command` would test it, and is "" if there is none."""

    command: str


class JudgedExplanation(OfClaim, frozen=True, kw_only=True):
    """An explanation with a verdict, and the grade of its evidence."""

    verdict: str
    grade: Pair | None = None


class FromRuns(JudgedExplanation, frozen=True, kw_only=True, tag="runs"):
    """An explanation from the runs of `study`, STUDY/SCALE.

    `confidence` is the confidence level of the interval, or None if seeds that train were counted.
    """

    finding: Pair
    seeds: int
    confidence: float | None
    study: str


class FromTimings(JudgedExplanation, frozen=True, kw_only=True, tag="timing"):
    """An explanation from timings, which were repeated in rounds."""

    finding: Pair
    rounds: int


class FromCheck(JudgedExplanation, frozen=True, kw_only=True, tag="check"):
    """An explanation from the findings of a computed check."""

    check: str
    findings: tuple[Pair, ...] = ()


class FromSources(JudgedExplanation, frozen=True, kw_only=True, tag="sources"):
    """An explanation from published code and papers."""

    finding: Pair


class Scores(Struct, frozen=True, tag="scores"):
    """What the runs of `study`, STUDY/SCALE, show, without a verdict."""

    finding: Pair
    study: str


class Remark(Struct, frozen=True, tag="remark"):
    """The reason why there is nothing to measure."""

    statement: Pair


Explanation = FromRuns | FromTimings | FromCheck | FromSources | NotTested | Scores | Remark


def in_both(text: Callable[[Locale], str]) -> Pair:
    """Return a text in both languages, with typographic minus and plus-minus signs."""
    return both_of(text(CHINESE.typeset), text(ENGLISH.typeset))


def both_of(chinese: str, english: str) -> Pair:
    """Return both texts, or one if they are the same."""
    return (chinese,) if chinese == english else (chinese, english)
