"""All checks reproduce the findings in the ledger."""

from pathlib import Path

from normlab.claim_checks import checks
from normlab.claims.evidence import to_json

KEPT = Path(__file__).resolve().parents[2] / "results" / "computed.json"


def test_all_computed_parts_reproduce_the_committed_findings():
    assert to_json({each.name: each.ask() for each in checks()}) == KEPT.read_text("utf-8")
