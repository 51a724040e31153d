"""The verdict on a sentence of an article, from the verdicts of its evidence.

Each piece of evidence has a verdict on the words that it is about (`Evidence.verdict`, in
`evidence_kinds/part.py` and `check.py`); scores and remarks have none. Both the verdict that the
interactive page shows and how far the sentence is answered (`results/sentences.md`) follow from
these verdicts here, and nowhere else.
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
    "nothing": "it states nothing that can be checked, such as the numbers of an example",
}
"""The states of a sentence, from answered to not tested, with their meanings."""
_UNDECIDED = {"undecided": "open", "not measured": "not tested"}
"""The states of sentences of which nothing is decided, by their verdict."""


class SentenceVerdict(NamedTuple):
    """How far a sentence is answered, one of `STATES`, and the verdict on it.

    The verdict is a claim's (`combined_verdict`), except that a sentence is `supported` only if
    nothing that it refers to is open. It is "" if none of the evidence has a verdict.
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
