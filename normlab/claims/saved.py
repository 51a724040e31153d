"""Converts judged claims to entries of the ledger's file, and to its text."""

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from normlab.claims.decision import p_text
from normlab.claims.ledger import JudgedClaim, JudgedPart
from normlab.claims.ledger_file import SavedClaim, SavedPart
from normlab.claims.texts import (
    grade_in_chinese,
    observed_p,
    outcome_text,
    part_text,
    seeds_text,
    value_text,
    verdict_text,
)
from normlab.claims.verdict import Reason


def ledger_json(claims: Sequence[SavedClaim]) -> str:
    """Return claims as JSON."""
    return json.dumps(msgspec.to_builtins(claims), ensure_ascii=False, indent=1) + "\n"


def saved_claim(entry: JudgedClaim) -> SavedClaim:
    """Return the ledger's entry for a claim with its parts."""
    claim = entry.claim
    return SavedClaim(
        id=claim.id,
        verdict=entry.verdict,
        verdict_text=verdict_text(entry),
        statement=claim.statement,
        chinese=claim.chinese,
        answer=claim.answer,
        chinese_answer=claim.chinese_answer,
        figure=claim.figure,
        articles=claim.articles,
        see=claim.see,
        literature=claim.literature.strip(),
        parts=tuple(map(saved_part, entry.primary)),
        secondary=tuple(map(saved_part, entry.secondary)),
    )


def saved_part(outcome: JudgedPart) -> SavedPart:
    """Return the ledger's entry for a part or a secondary endpoint, with rounded numbers."""
    decision, basis, endpoint = outcome.decision, outcome.basis, outcome.endpoint
    estimate, p, more = decision.estimate, observed_p(outcome), outcome.judgement.to_measure
    measured = bool(endpoint.scored or endpoint.limits)
    corrected = "" if outcome.p_holm is None else f" (corrected {p_text(outcome.p_holm)})"
    reason = outcome.reason if isinstance(outcome.reason, Reason) else None
    return SavedPart(
        part=outcome.number,
        name=outcome.part.name,
        statement=part_text(outcome.part),
        chinese=outcome.part.chinese,
        question=outcome.question,
        source=endpoint.source,
        verdict=outcome.verdict,
        verdict_text=outcome_text(outcome),
        grades=(grade_in_chinese(outcome), outcome.grade) if outcome.grade else (),
        finding=value_text(outcome),
        unit=endpoint.unit,
        scores=endpoint.scored,
        number=decision.number if measured else (),
        sides=decision.sides if measured else (),
        counted=decision.counted and measured,
        reason=reason if measured else None,
        limits=tuple(float(f"{limit:.3g}") for limit in endpoint.limits or ()),
        test="" if p is None else f"p {p_text(p)}{corrected}, {seeds_text(outcome)}",
        trained=basis.trained,
        excluded="; ".join(basis.excluded),
        to_measure=more.command if more else "",
        cost=more.cost if more else "",
        n=basis.n,
        p=_rounded(p),
        p_corrected=_rounded(outcome.p_holm),
        confidence=_rounded(estimate and estimate.confidence),
        value=_rounded(estimate and estimate.mean),
        low=_rounded(estimate and estimate.low),
        high=_rounded(estimate and estimate.high),
        records=tuple(dict.fromkeys(path.partition("@seed")[0] for path in basis.records)),
    )


def _rounded(value: Any) -> Any:
    """Return a number rounded to six digits, or an infinite one as text, because JSON has none."""
    if value is None:
        return None
    rounded = float(f"{value:.6g}")
    return rounded if math.isfinite(rounded) else str(rounded)
