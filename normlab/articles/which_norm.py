"""Which norm when: advice for a situation, withdrawn when what it rests on changes.

`page` returns `results/which_norm.md` in both languages, from `configs/which_norm.yaml`:

when: {zh: ..., en: ...}     the situation
advice: {zh: ..., en: ...}   what follows, as long as every part in `rests_on` has its verdict, and
                             each number is `within` its bounds; `{0:.1f}` is the first one's size
rests_on: {2.worse: supported, ...}
also: [2.unstable, ...]      other parts that a reader should know, with whatever verdict they have
numbers: [{gap: ..., within: [0, null]}, ...]    differences in the records that no part has a
                             verdict on, as in configs/article/, and the bounds of their means
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from normlab.articles.evidence import GapItem, PartItem
from normlab.articles.language import CHINESE, ENGLISH, Locale, Words
from normlab.articles.layout import filled
from normlab.articles.results import Results
from normlab.config.conversion import convert
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError
from normlab.records.labels import in_markdown

_ENDS = (-math.inf, math.inf)


class Number(NamedTuple):
    """A difference in the records, and the bounds between which the advice needs its mean."""

    gap: GapItem
    low: float
    high: float

    def changed(self, results: Results) -> bool:
        return not self.low <= self.gap.interval(results).mean <= self.high


class Situation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A situation, the advice for it, and the parts of claims that the advice rests on."""

    when: Words
    advice: Words
    rests_on: dict[str, str]
    also: tuple[str, ...] = ()
    numbers: tuple[Any, ...] = ()

    def changed(self, results: Results) -> list[str | Number]:
        """Return the parts and numbers that are no longer what the advice needs."""
        parts = [
            name
            for name, verdict in self.rests_on.items()
            if results.part(name)["verdict"] != verdict
        ]
        return [*parts, *(number for number in self.numbers if number.changed(results))]

    def advised(self, results: Results, language: Locale) -> str:
        """Return the advice with the sizes of its numbers."""
        sizes = [abs(number.gap.interval(results).mean) for number in self.numbers]
        return self.advice.text(language).format(*sizes)


class _Choices(Struct, frozen=True, forbid_unknown_fields=True):
    situations: tuple[Situation, ...]


def load_situations(path: Path) -> tuple[Situation, ...]:
    """Return the situations of a file; UserError naming file and key if it is invalid."""
    situations = convert(read_yaml(path), _Choices, path).situations
    for number, situation in enumerate(situations):
        key = f"{path}: situations[{number}].rests_on"
        if not situation.rests_on:
            raise UserError(f"{key}: is empty; name a part of a claim and its verdict")
        for name, verdict in situation.rests_on.items():
            if verdict not in ENGLISH.verdicts:
                known = ", ".join(ENGLISH.verdicts)
                raise UserError(f"{key}.{name}: {verdict!r} is not a verdict; choose from {known}")
    return tuple(
        msgspec.structs.replace(
            each, numbers=_numbers(each.numbers, path, f"situations[{number}].numbers")
        )
        for number, each in enumerate(situations)
    )


def _numbers(nodes: Sequence[Any], path: Path, key: str) -> tuple[Number, ...]:
    """Convert a situation's numbers; UserError with its key if one lacks its bounds."""
    numbers: list[Number] = []
    for place, node in enumerate(nodes):
        bounds = node.get("within") if isinstance(node, dict) else None
        if not (isinstance(bounds, list) and len(bounds) == 2):
            raise UserError(
                f"{path}: {key}[{place}].within: needs the bounds of the mean difference, such as "
                "[0, null] for at least 0"
            )
        low, high = (
            end if bound is None else bound for bound, end in zip(bounds, _ENDS, strict=True)
        )
        rest = {name: value for name, value in node.items() if name != "within"}
        numbers.append(Number(convert(rest, GapItem, path, f"{key}[{place}]"), low, high))
    return tuple(numbers)


def page(situations: Sequence[Situation], results: Results) -> str:
    """Return the page in Markdown; UserError if a part that it names does not exist."""
    shown = {
        language.code: [_shown(situation, results, language) for situation in situations]
        for language in (ENGLISH, CHINESE)
    }
    return filled("which_norm.md", shown).rstrip() + "\n"


class _Shown(Struct, frozen=True):
    """A situation in one language: its advice, or the parts for which it was withdrawn."""

    when: str
    advice: str
    changed: list[str]
    evidence: list[str]
    also: list[str]
    numbers: list[str]


def _shown(situation: Situation, results: Results, language: Locale) -> _Shown:
    return _Shown(
        in_markdown(situation.when.text(language)),
        in_markdown(situation.advised(results, language)),
        [_evidence(each, results, language) for each in situation.changed(results)],
        [_line(name, results, language) for name in situation.rests_on],
        [_line(name, results, language) for name in situation.also],
        [_evidence(number, results, language) for number in situation.numbers],
    )


def _evidence(each: str | Number, results: Results, language: Locale) -> str:
    if isinstance(each, Number):
        return in_markdown(each.gap.short(results, language))
    return _line(each, results, language)


def _line(name: str, results: Results, language: Locale) -> str:
    """Return a part: its verdict, what it says, what was found, its grade and its place."""
    part, item = results.part(name), PartItem(part=name)
    statement = part["chinese"] if language is CHINESE else part["statement"]
    value = item.value(results, language) if part["verdict"] != "not measured" else ""
    grade = part["grades"][0 if language is CHINESE else 1] if part["grades"] else ""
    verdict = f"*{language.verdicts[part['verdict']]}*"
    place = f"[{item.place(results)}](claims.md#claim-{name.partition('.')[0]})"
    facts = language.between.join(filter(None, [in_markdown(value), in_markdown(grade)]))
    graded = facts.join(language.ends) if facts else ""
    measured = language.measurement.format(facts) if value else graded
    return f"{verdict} {language.about.format(place, in_markdown(statement))}{measured}"
