"""Judges all claims by the records in a folder of results, and fills the pages that show them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from normlab.claims.claim import load_all
from normlab.claims.evidence import COMPUTED, CheckFinding, EvidenceStore, read_computed, to_json
from normlab.claims.ledger import check_plans, ledger, with_measurements
from normlab.claims.ledger_file import LEDGER, SavedClaim
from normlab.claims.pages import markdown, summary
from normlab.claims.saved import ledger_json, saved_claim


@dataclass(frozen=True)
class JudgedResults:
    """All claims as saved in the ledger, the pages, and a message per damaged record.

    `pages` has the texts of the ledger as Markdown and JSON, of its summary, and of the findings of
    checks, keyed by path.
    """

    claims: Sequence[SavedClaim]
    pages: Mapping[Path, str]
    damaged: Sequence[str]


def judge_results(
    results: Path, configs: Path, compute: Callable[[str], Sequence[CheckFinding]] | None = None
) -> JudgedResults:
    """Judge all claims in `configs` by the records in `results`.

    `compute` runs a check, given its name. If it is None, the saved findings of checks are used.
    """
    claims = load_all(configs / "claim")
    computed: Mapping[str, Sequence[CheckFinding]] = read_computed(results / COMPUTED)
    if compute is not None:
        endpoints = [each for claim in claims for part in claim.parts for each in part.endpoints]
        checks = sorted({endpoint.source.check for endpoint in endpoints} - {""})
        computed = {name: compute(name) for name in checks}
    evidence = EvidenceStore(configs, computed=computed)
    check_plans(claims, evidence)
    evidence.read(results)
    judged_claims = with_measurements(ledger(claims, evidence), evidence)
    saved_claims = list(map(saved_claim, judged_claims))
    pages = {
        results / "claims.md": markdown(judged_claims),
        results / "summary.md": summary(judged_claims),
        results / LEDGER: ledger_json(saved_claims),
        results / COMPUTED: to_json(computed),
    }
    return JudgedResults(saved_claims, pages, evidence.damaged)
