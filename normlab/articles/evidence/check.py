"""A finding of a computed check: `{check: modes.mismatch 1, zh: {supports: 输出不同}}`."""

from msgspec import Struct

from normlab.articles.checks_in_chinese import Translation, translated
from normlab.articles.evidence.base import Evidence, register
from normlab.articles.explanation import Explanation, FromCheck, both_of
from normlab.articles.language import Locale, Words
from normlab.articles.results import Results
from normlab.claims.verdict import Verdict


@register("check")
class CheckEvidence(Struct, Evidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A finding of a computed check, by check and number; `zh` states it in Chinese."""

    check: str
    zh: Translation
    about: Words | None = None

    def text(self, results: Results, language: Locale) -> str:
        return language.verdicts[self.verdict(results)]

    def place(self, results: Results) -> str:
        return self.check

    def explanation(self, results: Results) -> Explanation:
        finding, check = results.check(self.check), self.check.partition(" ")[0]
        return FromCheck(
            verdict=self.verdict(results),
            statement=("", finding.question),
            claim=results.claim_of_check(check),
            check=check,
            findings=(both_of(self.in_chinese(results), finding.finding),),
        )

    def note(self, results: Results, language: Locale) -> str:
        finding = results.check(self.check)
        verdict = language.verdicts[self.verdict(results)]
        if language.code == "zh":  # what was found; the verdict is on the cell's words
            text = f"{verdict}{language.stop}{self.in_chinese(results)}{language.stop}"
        else:
            question = language.about.format(verdict, finding.question) + language.stop
            text = question + language.measurement.format(finding.finding)
        return f"[{self.check}] {text}"

    def verdict(self, results: Results) -> Verdict:
        supports = results.check(self.check).standing == "supports"
        return "supported" if supports else "contradicted"

    def in_chinese(self, results: Results) -> str:
        """Return the finding in Chinese; UserError if `zh` does not say what was found."""
        return translated(self.zh, results.check(self.check), f"check {self.check}: zh")
