"""The answers on the interactive page: what was found on each sentence and cell, each once.

An answer, a sentence and a cell go to the page as a list of values; the page's `columns` name them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any, ClassVar, TypeVar

import msgspec
import yaml
from msgspec import Struct

from normlab.articles.evidence import (
    CheckItem,
    Item,
    PartItem,
    RowItem,
    TrainsItem,
    Translation,
    translated,
)
from normlab.articles.language import CHINESE, ENGLISH, Locale
from normlab.articles.results import Results
from normlab.claims.claim import Claim
from normlab.claims.endpoint import StudyEndpoint
from normlab.claims.ledger import verdict
from normlab.claims.other_endpoints import Computed, Published, Timing

_MINUS = re.compile(r"(?<![\w\-\u2212)])-(?=\d)")
T = TypeVar("T")
Pair = tuple[str, ...]
"""A text in Chinese and in English, or once if it is the same in both."""


class OfClaim(Struct, frozen=True, array_like=True, kw_only=True):
    """An answer about a statement, which is part of a claim."""

    statement: Pair
    claim: int | None = None


class NotTested(OfClaim, frozen=True, array_like=True, kw_only=True, tag="not measured"):
    """A part without an answer, and the command that would give it, or ""."""

    verdict: ClassVar[str] = "not measured"
    command: str


class JudgedAnswer(OfClaim, frozen=True, array_like=True, kw_only=True):
    """An answer with a verdict; `grade` is an index into `Answers.grades`."""

    verdict: str
    grade: int | None = None


class FromRuns(JudgedAnswer, frozen=True, array_like=True, kw_only=True, tag="runs"):
    """An answer from the runs of a study, given by its index in `Answers.studies`.

    Without a confidence level, seeds were counted.
    """

    finding: Pair
    seeds: int
    confidence: float | None
    study: int


class FromTimings(JudgedAnswer, frozen=True, array_like=True, kw_only=True, tag="timing"):
    """An answer from timings, in rounds."""

    finding: Pair
    rounds: int


class FromCheck(JudgedAnswer, frozen=True, array_like=True, kw_only=True, tag="check"):
    """An answer from a computed check; its findings are indices into `Answers.findings`."""

    check: str
    findings: tuple[int, ...] = ()


class FromSources(JudgedAnswer, frozen=True, array_like=True, kw_only=True, tag="sources"):
    """An answer from published code and papers."""

    finding: Pair


class Scores(Struct, frozen=True, array_like=True, tag="scores"):
    """What the runs of a study show without a verdict."""

    finding: Pair
    study: int


class Remark(Struct, frozen=True, array_like=True, tag="remark"):
    """Why there is nothing to measure."""

    statement: Pair


Answer = FromRuns | FromTimings | FromCheck | FromSources | NotTested | Scores | Remark
Reference = int | tuple[int, int]
"""The number of an answer, or it and the number of the words that the answer is about."""


class Answers:
    """The answers in the order in which the articles need them.

    `claims` has the answers to whole claims. What several answers share is numbered: findings of
    checks, grades, studies with their scale (STUDY/SCALE), and `subjects`, the words of a sentence
    that an answer is about.
    """

    def __init__(self, results: Results, claims: Sequence[Claim]) -> None:
        self.results = results
        self.endpoints = {
            f"{claim.id}.{part.name}": part.endpoint for claim in claims for part in claim.parts
        }
        self.answers: list[Answer] = []
        self.claims: dict[int, Pair] = {}
        self.findings: list[Pair] = []
        self.grades: list[Pair] = []
        self.studies: list[str] = []
        self.subjects: list[Pair] = []
        self._numbers: dict[Item, int] = {}

    def whole_claims(self, items: Iterable[Item]) -> tuple[int, ...]:
        """Return the claims whose answers fit a sentence that refers to these items.

        It must refer to at least half of a claim's parts: the answer to a whole claim does not fit
        a sentence about one of its many facts.
        """
        parts = dict.fromkeys(item.part for item in items if isinstance(item, PartItem))
        referred = Counter(int(part.partition(".")[0]) for part in parts)
        ledger = self.results.claims
        fitting = [claim for claim, n in referred.items() if 2 * n >= len(ledger[claim]["parts"])]
        for claim in fitting:
            self.claims[claim] = both_of(ledger[claim]["chinese_answer"], ledger[claim]["answer"])
        return tuple(fitting)

    def number(self, item: Item) -> int:
        """Return the number of the answer of an item; UserError if it does not exist."""
        item = msgspec.structs.replace(item, about=None)
        if item not in self._numbers:
            self._numbers[item] = len(self.answers)
            self.answers.append(self._answer(item))
        return self._numbers[item]

    def reference(self, item: Item) -> Reference:
        number = self.number(item)
        if item.about is None:
            return number
        return number, _number(self.subjects, in_both(item.about.text))

    def verdict(self, items: Iterable[Item]) -> str:
        """Return the verdict on a sentence, from the parts and checks that it refers to, or "".

        Unlike a claim, a sentence is supported only if nothing that it refers to is open.
        """
        answers = [self.answers[self.number(item)] for item in items]
        judged: list[Any] = [
            each.verdict for each in answers if isinstance(each, JudgedAnswer | NotTested)
        ]
        if not judged:
            return ""
        combined = verdict(judged)
        all_supported = set(judged) == {"supported"}
        return "mixed" if combined == "supported" and not all_supported else combined

    def _answer(self, item: Item) -> Answer:
        if isinstance(item, PartItem):
            return self._part(item)
        if isinstance(item, CheckItem):
            return self._check(item)
        if not isinstance(item, RowItem):
            return Remark(in_both(lambda language: item.text(self.results, language)))

        def shown(language: Locale) -> str:
            text = item.text(self.results, language)
            counted = isinstance(item, TrainsItem)
            return text if counted else f"{language.score_name(item.name())} {text}"

        return Scores(in_both(shown), _number(self.studies, item.of))

    def _part(self, item: PartItem) -> Answer:
        part, endpoint = self.results.part(item.part), self.endpoints[item.part]
        of_claim = {
            "statement": both_of(part["chinese"], part["statement"]),
            "claim": int(item.part.partition(".")[0]),
        }
        if part["verdict"] == "not measured":
            return NotTested(**of_claim, command=part["to_measure"])
        judged = {
            **of_claim,
            "verdict": part["verdict"],
            "grade": _number(self.grades, tuple(part["grades"])) if part["grades"] else None,
        }
        if isinstance(endpoint, Computed):
            findings = tuple(self._findings(endpoint))
            return FromCheck(**judged, check=endpoint.check, findings=findings)
        if isinstance(endpoint, Published):
            finding = both_of(endpoint.chinese, item.value(self.results, ENGLISH))
            return FromSources(**judged, finding=finding)
        judged["finding"] = in_both(lambda language: item.value(self.results, language))
        if isinstance(endpoint, Timing):
            return FromTimings(**judged, rounds=part["n"])
        assert isinstance(endpoint, StudyEndpoint)
        study = _number(self.studies, f"{endpoint.study}/{endpoint.scale}")
        confidence = part.get("confidence")
        return FromRuns(**judged, seeds=part["n"], confidence=confidence, study=study)

    def _check(self, item: CheckItem) -> FromCheck:
        finding, name = self.results.check(item.check), item.check.partition(" ")[0]
        return FromCheck(
            verdict=item.verdict(self.results),
            statement=("", typeset(finding.question)),
            claim=self._claim_of.get(name),
            check=name,
            findings=(self._finding(item.in_chinese(self.results), finding.finding),),
        )

    def _finding(self, chinese: str, english: str) -> int:
        return _number(self.findings, both_of(chinese, english))

    def _findings(self, endpoint: Computed) -> Iterator[int]:
        """Yield the number of each finding of a check that decides a part."""
        findings = zip(
            self.results.checks.get(endpoint.check, ()), self._chinese[endpoint.check], strict=True
        )
        chosen = [(finding, text) for finding, text in findings if endpoint.chooses(finding)]
        for finding, text in chosen:
            question = f"{finding.question}? " if len(chosen) > 1 else ""
            chinese = translated(text, finding, endpoint.check)
            yield self._finding(chinese, question + finding.finding)

    @cached_property
    def _chinese(self) -> Mapping[str, tuple[Translation, ...]]:
        """The findings of each computed check in Chinese."""
        path = files("normlab.articles") / "templates" / "findings.yaml"
        texts = yaml.safe_load(path.read_text("utf-8"))
        return msgspec.convert(texts, dict[str, tuple[Translation, ...]])

    @cached_property
    def _claim_of(self) -> Mapping[str, int]:
        """Maps each computed check to the first claim that it decides a part of."""
        claims: dict[str, int] = {}
        for name, endpoint in self.endpoints.items():
            if isinstance(endpoint, Computed):
                claims.setdefault(endpoint.check, int(name.partition(".")[0]))
        return claims


def _number(known: list[T], entry: T) -> int:
    """Return the number of an entry of a list, to which it is appended if it is new."""
    if entry not in known:
        known.append(entry)
    return known.index(entry)


def in_both(text: Callable[[Locale], str]) -> Pair:
    """Return a text in both languages, or once if it is the same in both."""
    return both_of(text(CHINESE), text(ENGLISH))


def both_of(chinese: str, english: str) -> Pair:
    """Return both languages' texts as the page shows them, or one if they are the same."""
    pair = typeset(chinese), typeset(english)
    return pair[:1] if pair[0] == pair[1] else pair


def typeset(text: str) -> str:
    """Return text with true signs: a minus before numbers, and plus or minus; `code` stays."""
    parts = text.split("`")
    parts[::2] = [_MINUS.sub("\u2212", each.replace("+-", "\u00b1")) for each in parts[::2]]
    return "`".join(parts)
