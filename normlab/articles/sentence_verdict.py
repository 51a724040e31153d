"""The verdict on a sentence of an article, from the verdicts of its evidence.

Parts of claims and findings of checks have a verdict on the words that they are about
(`Evidence.verdict`); scores and remarks have none. Only this file combines these verdicts into the
one that the interactive page shows, and into how far the sentence is answered
(`results/sentences.md`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from normlab.articles.evidence_kinds import Evidence
from normlab.articles.results import Results
from normlab.claims.verdict import DECIDED, Verdict, combined_verdict

STATES = {
    "answered": "every question that it raises is decided, either way",
    "answered in part": "some are decided, others are open or not tested",
    "open": "runs were made, but do not decide it",
    "not tested": "there is no run or source yet",
    "numbers": "what was measured is shown, without a verdict",
    "remark": "there is nothing to measure; the reason is given",
    "nothing": "it states nothing to check; it only gives the numbers of an example, for instance",
}
"""The states of a sentence, with their meanings."""
_UNDECIDED = {"undecided": "open", "not measured": "not tested"}
"""The state of a sentence of which nothing is decided, by its verdict."""


class SentenceVerdict(NamedTuple):
    """How far a sentence is answered, as one of `STATES`, and the verdict on it.

    Verdicts are combined as for a claim (`combined_verdict`), except that a sentence is `supported`
    only if none of its evidence is open. The verdict is "" if no evidence has one.
    """

    state: str
    verdict: str

    @classmethod
    def of(cls, evidence: Sequence[Evidence], results: Results) -> "SentenceVerdict":
        verdicts: list[Verdict] = [
            v for each in evidence if (v := each.verdict(results)) is not None
        ]
        if not verdicts:
            has_scores = any(each.study_rows for each in evidence)
            return cls("numbers" if has_scores else "remark" if evidence else "nothing", "")
        verdict = combined_verdict(verdicts)
        if verdict in _UNDECIDED:
            return cls(_UNDECIDED[verdict], verdict)
        if all(each in DECIDED for each in verdicts):
            return cls("answered", verdict)
        return cls("answered in part", "mixed" if verdict == "supported" else verdict)
