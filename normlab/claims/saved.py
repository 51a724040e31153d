"""Converts judged claims to entries of the ledger's file, and the entries to JSON."""

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from normlab.claims.ledger import JudgedClaim, JudgedPart
from normlab.claims.ledger_file import SavedClaim, SavedPart
from normlab.claims.shown_number import shown_estimate
from normlab.claims.texts import (
    chinese_part_text,
    grade_in_chinese,
    number_texts,
    observed_p,
    p_text,
    part_text,
    part_verdict_text,
    reason_of,
    seeds_text,
    side_values,
    value_text,
    verdict_text,
)
from normlab.claims.verdict import Reason


def ledger_json(claims: Sequence[SavedClaim]) -> str:
    """Return claims as JSON."""
    return json.dumps(msgspec.to_builtins(claims), ensure_ascii=False, indent=1) + "\n"


def saved_claim(judged_claim: JudgedClaim) -> SavedClaim:
    """Return the ledger's entry for a claim with its parts."""
    claim = judged_claim.claim
    return SavedClaim(
        id=claim.id,
        verdict=judged_claim.verdict,
        verdict_text=verdict_text(judged_claim),
        statement=claim.statement,
        chinese=claim.chinese,
        answer=claim.answer,
        chinese_answer=claim.chinese_answer,
        figure=claim.figure,
        articles=claim.articles,
        see=claim.see,
        literature=claim.literature.strip(),
        parts=tuple(map(saved_part, judged_claim.primary)),
        secondary=tuple(map(saved_part, judged_claim.secondary)),
    )


def saved_part(judged_part: JudgedPart) -> SavedPart:
    """Return the ledger's entry for a part or a secondary endpoint, with rounded numbers."""
    decision, basis, endpoint = judged_part.decision, judged_part.basis, judged_part.endpoint
    estimate, p, more = shown_estimate(decision), observed_p(judged_part), judged_part.to_measure
    is_number = bool(endpoint.scores or endpoint.limits)
    corrected = "" if judged_part.p_holm is None else f" (corrected {p_text(judged_part.p_holm)})"
    reason = reason_of(judged_part)
    return SavedPart(
        part=judged_part.number,
        name=judged_part.part.name,
        statement=part_text(judged_part.part),
        chinese=chinese_part_text(judged_part.part),
        question=judged_part.question,
        source=endpoint.source,
        verdict=judged_part.verdict,
        verdict_text=part_verdict_text(judged_part),
        grades=(grade_in_chinese(judged_part), judged_part.grade) if judged_part.grade else (),
        finding=value_text(judged_part),
        unit=endpoint.unit,
        scores=endpoint.scores,
        minus=endpoint.subtracted,
        number=number_texts(decision) if is_number else (),
        sides=side_values(judged_part) if is_number else (),
        counted=bool(decision.trained) and is_number,
        reason=reason if is_number and isinstance(reason, Reason) else None,
        limits=tuple(float(f"{limit:.3g}") for limit in endpoint.limits or ()),
        test="" if p is None else f"p {p_text(p)}{corrected}, {seeds_text(judged_part)}",
        trained=basis.trained,
        excluded="; ".join(basis.excluded),
        to_measure=more.command if more else "",
        cost=more.cost if more else "",
        n=basis.n,
        p=_rounded(p),
        p_corrected=_rounded(judged_part.p_holm),
        confidence=_rounded(estimate and estimate.confidence),
        value=_rounded(estimate and estimate.mean),
        low=_rounded(estimate and estimate.low),
        high=_rounded(estimate and estimate.high),
        records=tuple(dict.fromkeys(path.partition("@seed")[0] for path in basis.records)),
    )


def _rounded(value: Any) -> Any:
    """Return a number rounded to six digits, or infinity as text, because JSON has no infinity."""
    if value is None:
        return None
    rounded = float(f"{value:.6g}")
    return rounded if math.isfinite(rounded) else str(rounded)
