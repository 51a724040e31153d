"""The verdict on a part of a claim: `{part: 2.worse}`."""

from collections.abc import Callable
from typing import TypedDict

from msgspec import Struct

from normlab.articles.checks_in_chinese import deciding_findings
from normlab.articles.evidence_kinds.base import CellText, Evidence, register
from normlab.articles.explanation import (
    Explanation,
    FromCheck,
    FromRuns,
    FromSources,
    FromTimings,
    NotTested,
    Pair,
    both_of,
    in_both,
)
from normlab.articles.results import Results
from normlab.claims.in_words.finding_text import facts_text, finding_text
from normlab.claims.in_words.language import Locale, Words
from normlab.claims.ledger_file import SavedPart
from normlab.claims.verdict import Verdict


@register("part")
class PartEvidence(Struct, Evidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The verdict on a part of a claim, given the claim's number and the part's name."""

    part: str
    about: Words | None = None

    def cell_text(self, results: Results, language: Locale) -> CellText:
        part, place = results.part(self.part), results.place(self.part)
        verdict = language.verdicts[part.verdict]
        statement = language.choose(part.chinese, part.statement)
        if facts := facts_text(part, language):
            statement += language.phrasing.measurement.format(facts)
        note = f"[{place}] {language.phrasing.about.format(verdict, statement)}"
        return CellText(verdict, place, note)

    def explanation(self, results: Results) -> Explanation:
        part, claim = results.part(self.part), results.claim_of(self.part).id
        statement = both_of(part.chinese, part.statement)
        if not part.measured:
            return NotTested(statement=statement, claim=claim, command=part.to_measure)
        judged = _Judged(
            statement=statement, claim=claim, verdict=part.verdict, grade=part.grades or None
        )
        return _EXPLANATIONS[part.source.kind](part, results, judged)

    def verdict(self, results: Results) -> Verdict:
        return results.part(self.part).verdict

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.part,)


class _Judged(TypedDict):
    """The fields that all explanations of judged parts share."""

    statement: Pair
    claim: int
    verdict: Verdict
    grade: Pair | None


def _from_runs(part: SavedPart, results: Results, judged: _Judged) -> Explanation:
    finding = in_both(lambda language: finding_text(part, language))
    return FromRuns(
        **judged,
        finding=finding,
        seeds=part.n,
        confidence=part.confidence,
        study=part.source.study,
    )


def _from_timing(part: SavedPart, results: Results, judged: _Judged) -> Explanation:
    finding = in_both(lambda language: finding_text(part, language))
    return FromTimings(**judged, finding=finding, rounds=part.n)


def _from_check(part: SavedPart, results: Results, judged: _Judged) -> Explanation:
    """Explain a part by the findings that decide it, with their statements if there are several."""
    chosen = [*deciding_findings(part.source, results)]
    findings = tuple(
        both_of(chinese, each.sentence if len(chosen) > 1 else each.finding)
        for each, chinese in chosen
    )
    return FromCheck(**judged, check=part.source.check, findings=findings)


def _from_sources(part: SavedPart, results: Results, judged: _Judged) -> Explanation:
    return FromSources(**judged, finding=both_of(part.source.chinese, part.finding))


_EXPLANATIONS: dict[str, Callable[[SavedPart, Results, _Judged], Explanation]] = {
    "runs": _from_runs,
    "timing": _from_timing,
    "check": _from_check,
    "sources": _from_sources,
}
"""Functions that explain a part, keyed by the kind of its source (`EvidenceSource.kind`)."""
