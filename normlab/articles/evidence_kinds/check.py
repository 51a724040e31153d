"""A finding of a computed check: `{check: modes.mismatch, finding: bn, zh: {supports: 输出不同}}`.

Readers see its number, `[modes.mismatch 1]`, which keeps cells short.
"""

from msgspec import Struct, field

from normlab.articles.checks_in_chinese import Translation, translated
from normlab.articles.evidence_kinds.base import Evidence, register
from normlab.articles.explanation import Explanation, FromCheck, both_of
from normlab.articles.results import Results
from normlab.claims.evidence import CheckFinding
from normlab.claims.in_words.language import Locale, Words
from normlab.claims.verdict import Verdict


@register("check")
class CheckEvidence(Struct, Evidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A finding of a computed check, by check and name; `zh` states it in Chinese."""

    check: str
    name: str = field(name="finding")
    zh: Translation
    about: Words | None = None

    def text(self, results: Results, language: Locale) -> str:
        return language.verdicts[self.verdict(results)]

    def place(self, results: Results) -> str:
        return results.place_of_finding(self.check, self.name)

    def explanation(self, results: Results) -> Explanation:
        finding = self.finding(results)
        return FromCheck(
            verdict=self.verdict(results),
            statement=("", finding.question),
            claim=results.claim_of_check(self.check),
            check=self.check,
            findings=(both_of(self.in_chinese(results), finding.finding),),
        )

    def note(self, results: Results, language: Locale) -> str:
        finding = self.finding(results)
        text = language.phrasing.check.format(
            verdict=language.verdicts[self.verdict(results)],
            question=finding.question,
            finding=language.choose(self.in_chinese(results), finding.finding),
        )
        return f"[{self.place(results)}] {text}"

    def verdict(self, results: Results) -> Verdict:
        supports = self.finding(results).standing == "supports"
        return "supported" if supports else "contradicted"

    def in_chinese(self, results: Results) -> str:
        """Return the finding in Chinese. Raise UserError if `zh` does not state what was found."""
        place = f"check {self.check}, finding {self.name}: zh"
        return translated(self.zh, self.finding(results), place)

    def finding(self, results: Results) -> CheckFinding:
        """Return the finding. Raise UserError if the check has no finding with this name."""
        return results.finding(self.check, self.name)
