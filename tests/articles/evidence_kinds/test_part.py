"""Evidence from a part of a claim."""

from normlab.articles.evidence_kinds import PartEvidence
from normlab.claims.in_words.language import ENGLISH


def test_a_part_has_its_number_in_the_ledger_and_its_verdict(results):
    cell = PartEvidence(part="2.size").cell(results, ENGLISH)
    assert cell.line == "does not hold [2.5]" and cell.place == "2.5"
    assert PartEvidence(part="2.size").verdict(results) == "contradicted"
