"""The kinds of evidence that a sentence or cell refers to (`ours` in an article's file).

runs.py     a score, how many runs train, a difference: from the records of a study
part.py     the verdict on a part of a claim: from the ledger, `results/claims.json`
check.py    a finding of a computed check: from `results/computed.json`
remark.py   why there is nothing to measure

base.py has the methods that all of them have.
"""

from normlab.articles.evidence.base import Evidence, Shown, StudyRows
from normlab.articles.evidence.check import CheckEvidence
from normlab.articles.evidence.part import PartEvidence
from normlab.articles.evidence.remark import RemarkEvidence
from normlab.articles.evidence.runs import GapEvidence, ScoreEvidence, TrainsEvidence

__all__ = [
    "CheckEvidence",
    "Evidence",
    "GapEvidence",
    "PartEvidence",
    "RemarkEvidence",
    "ScoreEvidence",
    "Shown",
    "StudyRows",
    "TrainsEvidence",
]
