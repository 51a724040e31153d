"""All checks reproduce the findings in the ledger."""

from pathlib import Path

from normlab.claims.evidence import to_json
from normlab.inspection.questions import questions

KEPT = Path(__file__).resolve().parents[3] / "results" / "computed.json"


def test_all_computed_parts_reproduce_the_committed_findings():
    assert to_json({each.name: each.ask() for each in questions("claim")}) == KEPT.read_text(
        "utf-8"
    )
