"""A finding of a computed check: `{check: modes.mismatch, finding: bn, zh: {supports: 输出不同}}`.

Cells show its number, `[modes.mismatch 1]`, because it is shorter than its name.
"""

from msgspec import Struct

from normlab.articles.checks_in_chinese import Translation, translated
from normlab.articles.evidence_kinds.base import CellText, Evidence, register
from normlab.articles.explanation import Explanation, FromCheck, both_of
from normlab.articles.results import Results
from normlab.claims.in_words.language import Locale, Words
from normlab.claims.verdict import Verdict


@register("check")
class CheckEvidence(Struct, Evidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A finding of a computed check, given both names. `zh` states it in Chinese."""

    check: str
    finding: str
    zh: Translation
    about: Words | None = None

    def cell_text(self, results: Results, language: Locale) -> CellText:
        finding = results.finding(self.check, self.finding)
        place = results.place_of_finding(self.check, self.finding)
        verdict = language.verdicts[self.verdict(results)]
        note = language.phrasing.check.format(
            verdict=verdict,
            question=finding.question,
            finding=language.choose(self.in_chinese(results), finding.finding),
        )
        return CellText(verdict, place, f"[{place}] {note}")

    def explanation(self, results: Results) -> Explanation:
        finding = results.finding(self.check, self.finding)
        return FromCheck(
            verdict=self.verdict(results),
            statement=("", finding.question),
            claim=results.claim_of_check(self.check),
            check=self.check,
            findings=(both_of(self.in_chinese(results), finding.finding),),
        )

    def verdict(self, results: Results) -> Verdict:
        standing = results.finding(self.check, self.finding).standing
        return "supported" if standing == "supports" else "contradicted"

    def in_chinese(self, results: Results) -> str:
        """Return the finding in Chinese. Raise UserError if `zh` does not state what was found."""
        finding = results.finding(self.check, self.finding)
        return translated(self.zh, finding, f"check {self.check}, finding {self.finding}: zh")
