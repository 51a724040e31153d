"""A remark on why there is nothing to measure: `{remark: {zh: ..., en: ...}}`."""

from msgspec import Struct

from normlab.articles.evidence_kinds.base import CellText, Evidence, register
from normlab.articles.explanation import Explanation, Remark, in_both
from normlab.articles.results import Results
from normlab.claims.in_words.language import Locale, Words


@register("remark")
class RemarkEvidence(Struct, Evidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A remark on a sentence or cell for which nothing is, or can be, measured."""

    remark: Words
    about: Words | None = None

    def cell_text(self, results: Results, language: Locale) -> CellText:
        return CellText(self.remark.text(language))

    def explanation(self, results: Results) -> Explanation:
        return Remark(in_both(self.remark.text))
