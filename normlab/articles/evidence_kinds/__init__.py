"""The kinds of evidence that a sentence or cell refers to (`evidence:` in an article's file).

runs.py     a score, how many runs train, a difference: from the records of a study
part.py     the verdict on a part of a claim: from the ledger, `results/claims.json`
check.py    a finding of a computed check: from `results/computed.json`
remark.py   why there is nothing to measure

base.py has their base class.
"""

from normlab.articles.evidence_kinds.base import CellText, Evidence, StudyRows
from normlab.articles.evidence_kinds.check import CheckEvidence
from normlab.articles.evidence_kinds.part import PartEvidence
from normlab.articles.evidence_kinds.remark import RemarkEvidence
from normlab.articles.evidence_kinds.runs import GapEvidence, ScoreEvidence, TrainsEvidence

__all__ = [
    "CellText",
    "CheckEvidence",
    "Evidence",
    "GapEvidence",
    "PartEvidence",
    "RemarkEvidence",
    "ScoreEvidence",
    "StudyRows",
    "TrainsEvidence",
]
