"""Evidence from a part of a claim."""

from normlab.articles.evidence_kinds import PartEvidence
from normlab.claims.in_words.language import ENGLISH


def test_a_part_has_its_number_in_the_ledger_and_its_verdict(results):
    shown_part = PartEvidence(part="2.size").shown(results, ENGLISH)
    assert shown_part.line == "does not hold [2.5]" and shown_part.place == "2.5"
    assert PartEvidence(part="2.size").verdict(results) == "contradicted"
