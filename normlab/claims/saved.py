"""The ledger as JSON, `results/claims.json`."""

import json
from collections.abc import Sequence
from typing import Any

from normlab.claims.chinese import grade_in_chinese
from normlab.claims.decision import p_text
from normlab.claims.endpoint import Measurement
from normlab.claims.ledger import JudgedClaim, JudgedPart
from normlab.claims.texts import (
    observed_p,
    outcome_text,
    part_text,
    seeds_text,
    value_text,
    verdict_text,
)
from normlab.records.record import plain


def saved(entries: Sequence[JudgedClaim]) -> str:
    """Return the ledger as JSON, `results/claims.json`."""
    return json.dumps([_claim(entry) for entry in entries], ensure_ascii=False, indent=1) + "\n"


def _claim(entry: JudgedClaim) -> dict[str, Any]:
    claim = entry.claim
    fields = ("statement", "chinese", "answer", "chinese_answer", "figure", "articles", "see")
    return {
        "id": claim.id,
        "verdict": entry.verdict,
        "said": verdict_text(entry),
        **{name: getattr(claim, name) for name in fields},
        "literature": claim.literature.strip(),
        "parts": list(map(_outcome, entry.primary)),
        "secondary": list(map(_outcome, entry.secondary)),
    }


def _outcome(outcome: JudgedPart) -> dict[str, Any]:
    decision, basis = outcome.decision, outcome.basis
    numbers: dict[str, float | None] = {"p": observed_p(outcome), "p_corrected": outcome.p_holm}
    if (estimate := decision.estimate) is not None:
        numbers["confidence"] = estimate.confidence
        numbers |= {"value": estimate.mean, "low": estimate.low, "high": estimate.high}
    corrected = "" if outcome.p_holm is None else f" (corrected {p_text(outcome.p_holm)})"
    tested = f"p {p_text(observed_p(outcome))}{corrected}, {seeds_text(outcome)}"
    return {
        "part": outcome.number,
        "name": outcome.part.name,
        "statement": part_text(outcome.part),
        "chinese": outcome.part.chinese,
        "question": outcome.question,
        "verdict": outcome.verdict,
        "said": outcome_text(outcome),
        "grades": [grade_in_chinese(outcome), outcome.grade] if outcome.grade else [],
        "found": value_text(outcome),
        "unit": outcome.endpoint.unit,
        **outcome.finding,
        "test": "" if observed_p(outcome) is None else tested,
        **({"trained": basis.trained} if basis.trained else {}),
        "excluded": "; ".join(basis.excluded),
        **_measurement(outcome.judgement.to_measure),
        "n": basis.n,
        **{name: plain(float(f"{x:.6g}")) for name, x in numbers.items() if x is not None},
        "records": list(dict.fromkeys(path.partition("@seed")[0] for path in basis.records)),
    }


def _measurement(more: Measurement | None) -> dict[str, str]:
    return {"to_measure": more.command if more else "", "cost": more.cost if more else ""}
