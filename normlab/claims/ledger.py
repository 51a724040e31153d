"""Decides the ledger: every claim with its evidence, its verdict and what that rests on."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from normlab.claims.claim import Claim
from normlab.claims.evidence import Evidence, Verdict, strength, verdict
from normlab.claims.runs import Runs
from normlab.records.canonical import plain

FORMAT = "normlab.claims/1"
COMPUTE = "`normlab claims --check` computes it"


@dataclass(frozen=True)
class Entry:
    """A claim and all its evidence."""

    claim: Claim
    evidence: tuple[Evidence, ...]

    @property
    def verdict(self) -> Verdict:
        """Return what the evidence comes to."""
        return verdict(self.evidence)

    @property
    def strength(self) -> str:
        """Say what the verdict rests on; what is missing where nothing is there."""
        return strength(self.evidence) or self.claim.missing or "no evidence"


def ledger(
    claims: Sequence[Claim], runs: Runs, compute: Callable[[str], list[Evidence]] | None
) -> list[Entry]:
    """Gather the evidence for claims; `compute` runs a check by its name, or nothing computes."""
    return [Entry(claim, tuple(_gather(claim, runs, compute))) for claim in claims]


def _gather(
    claim: Claim, runs: Runs, compute: Callable[[str], list[Evidence]] | None
) -> list[Evidence]:
    pieces: list[Evidence] = []
    if claim.check is not None:
        waiting = Evidence("unit", f"the check {claim.check}", COMPUTE, "not computed")
        pieces += [waiting] if compute is None else compute(claim.check)
    for comparison in claim.comparisons:
        pieces += comparison.evidence(runs)
    if claim.standing is not None and claim.reason is not None:
        pieces.append(Evidence("note", "published code and papers", claim.reason, claim.standing))
    return pieces


def to_plain(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the ledger as plain values."""
    return {
        "format": FORMAT,
        "claims": [
            {
                **{key: getattr(entry.claim, key) for key in _SHOWN},
                "documents": list(entry.claim.documents),
                "verdict": entry.verdict,
                "strength": entry.strength,
                "evidence": [plain(asdict(piece)) for piece in entry.evidence],
            }
            for entry in entries
        ],
    }


_SHOWN = ("id", "name", "statement", "figure", "decided", "expected", "literature", "missing")
