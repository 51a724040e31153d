"""Ledgers for tests of pages, made by hand."""

from dataclasses import replace
from typing import Any

from normlab.claims.claim import Claim, Part
from normlab.claims.decision import Decision, Estimate, PValues
from normlab.claims.endpoint import Basis, Endpoint, Judgement, Measurement, Scope
from normlab.claims.ledger import JudgedClaim, JudgedPart
from normlab.claims.ledger_file import SavedClaim, SavedPart
from normlab.claims.other_endpoints import Computed, Published
from normlab.claims.source import EvidenceSource
from normlab.claims.study_endpoints import Contrast

COMMAND = "normlab study run norms scale=small"
ENDPOINT = Contrast(
    study="norms", scale="small", score="test/bleu", better={"norm": "ln"},
    worse={"norm": "bn"}, margin=0.5,
)  # fmt: skip
COMPARED = {
    "behind": {"norm=ln": 34.6, "norm=bn": 36.8},
    "p": PValues(0.0012, 0.0012),
    "estimate": Estimate(-2.27, -3.45, -1.09, 0.99),
    "n": 5,
    "grade": "C",
    "scope": Scope("Multi30k", ("2+2",)),
    "records": tuple(f"results/norms/cpu:{norm}@seed1" for norm in ("ln", "bn")),
}
OPEN = {"reason": "no runs", "to_measure": Measurement(COMMAND, "30 runs, about 2.0 h")}


def judged_part(
    verdict: Any,
    endpoint: Endpoint = ENDPOINT,
    *,
    to_measure: Measurement | None = None,
    **facts: Any,
) -> JudgedPart:
    basis = Basis(**{name: facts.pop(name) for name in [*facts] if name in Basis.__annotations__})
    judgement = Judgement(decision := Decision(verdict, **facts), basis)
    part = Part(name="a", statement="b", assertion="difference", endpoint=endpoint)
    p_holm = 0.012 if decision.p else None
    return JudgedPart(0, 1, part, endpoint, judgement, verdict, decision.reason, p_holm, to_measure)


def compared(verdict: Any, **changes: Any) -> JudgedPart:
    """Return a contrast with its values and the addresses of its records."""
    return judged_part(verdict, **{**COMPARED, **changes})


def open_part(**changes: Any) -> JudgedPart:
    return judged_part("not measured", **{**OPEN, **changes})


def decided(name: str, *judged_parts: JudgedPart, statement: str = "") -> list[JudgedPart]:
    """Return the judged endpoints of a part, the primary one first. `judged_claim` numbers them."""
    text = statement or f"It is so ({name})."
    part = Part(
        name=name, statement=text, assertion="difference", endpoint=judged_parts[0].endpoint
    )
    return [replace(each, part=part) for each in judged_parts]


def judged_claim(number: int, *parts: list[JudgedPart], **changes: Any) -> JudgedClaim:
    values = {"articles": ("article 1",), "statement": f"Statement {number}.", "figure": None}
    values |= {"answer": f"Answer {number}.", "chinese_answer": f"回答 {number}。"} | changes
    parts = tuple([replace(each, number=n) for each in part] for n, part in enumerate(parts, 1))
    claim_parts = tuple(each[0].part for each in parts)
    claim = Claim(id=number, parts=claim_parts, literature="Nothing is known.", **values)
    secondary = tuple(each for part in parts for each in part[1:])
    return JudgedClaim(claim, tuple(part[0] for part in parts), secondary)


def judged_claims() -> list[JudgedClaim]:
    """Return one claim for each verdict."""
    defined = judged_part("supported", Computed("a.b"), finding="bn: it moves by 21 %", grade="D")
    missing = "There is no task of pictures."
    awaited = judged_part("not measured", Published("missing", missing), reason=missing)
    second = compared("undecided", estimate=Estimate(1.0, 0.0, 2.0, 0.99))
    size = decided("size", compared("undecided", reason="its size is open"))
    excluded = open_part(excluded=("tested weights chosen by loss: 3",))
    return [
        judged_claim(
            1, decided("defined", defined), figure="35.2 BLEU", articles=("article 1", "article 2")
        ),
        judged_claim(
            2,
            decided("worse", compared("contradicted"), second),
            decided("by_much", compared("no difference")),
            see=("results/LOG.md",),
        ),
        judged_claim(
            3, decided("worse", compared("supported")), decided("same", compared("contradicted"))
        ),
        judged_claim(4, size),
        judged_claim(12, decided("pictures", awaited), decided("words", excluded)),
    ]


def saved_part(name: str, verdict: Any, number: int = 1, **values: Any) -> SavedPart:
    """Return a part as saved in the ledger's file, decided by a study's runs."""
    source = EvidenceSource("runs", study="norms/small")
    texts = {
        "statement": "It is worse.",
        "chinese": "较差。",
        "question": "",
        "verdict_text": verdict,
    }
    texts |= {"finding": "", "test": "", "excluded": "", "to_measure": "", "cost": ""}
    defaults = {**texts, "grades": (), "unit": "difference", "n": 0, "records": ()}
    return SavedPart(part=number, name=name, verdict=verdict, source=source, **defaults | values)


def saved_claim(number: int, *parts: SavedPart) -> SavedClaim:
    """Return a claim with these parts as saved in the ledger's file."""
    texts = (
        "verdict",
        "verdict_text",
        "statement",
        "chinese",
        "answer",
        "chinese_answer",
        "literature",
    )
    values = {**dict.fromkeys(texts, ""), "figure": None, "articles": ("article 1",)}
    return SavedClaim(id=number, parts=parts, see=(), secondary=(), **values)
