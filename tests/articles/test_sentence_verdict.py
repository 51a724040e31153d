"""The verdict on a sentence, and how far it is answered, from the verdicts of its parts."""

import pytest

from normlab.articles.evidence_kinds import PartEvidence, RemarkEvidence
from normlab.articles.results import Results
from normlab.articles.sentence_verdict import STATES, SentenceVerdict
from normlab.claims.in_words.language import Words
from normlab.config.folders import RESULTS
from tests.claims.ledgers import saved_claim, saved_part


def of_parts(*verdicts, before=()):
    """Return the verdict on a sentence with one part per verdict, and other evidence before it."""
    parts = [PartEvidence(part=f"{number}.p") for number, _ in enumerate(verdicts)]
    claims = {n: saved_claim(n, saved_part("p", verdict)) for n, verdict in enumerate(verdicts)}
    return SentenceVerdict.of((*before, *parts), Results(RESULTS, claims))


@pytest.mark.parametrize(
    ("verdicts", "state", "verdict"),
    [
        (["supported"], "answered", "supported"),
        (["contradicted", "no difference"], "answered", "contradicted"),
        (["supported", "contradicted"], "answered", "mixed"),
        (["supported", "undecided"], "answered in part", "mixed"),
        (["contradicted", "not measured"], "answered in part", "contradicted"),
        (["undecided", "not measured"], "open", "undecided"),
        (["not measured"], "not tested", "not measured"),
    ],
)
def test_a_sentence_is_answered_and_supported_only_if_every_part_is(verdicts, state, verdict):
    remark = RemarkEvidence(remark=Words("话", "a word"))
    assert of_parts(*verdicts) == of_parts(*verdicts, before=[remark]) == (state, verdict)
    assert state in STATES


def test_a_sentence_without_verdicts_has_the_state_remark_or_nothing():
    remark = RemarkEvidence(remark=Words("话", "a word"))
    assert of_parts(before=[remark]) == ("remark", "")
    assert of_parts() == ("nothing", "")
