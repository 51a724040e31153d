"""Ledgers for tests of pages, made by hand."""

from dataclasses import replace
from typing import Any

from normlab.claims.claim import Claim, Part
from normlab.claims.endpoint import Computed, Contrast, Published
from normlab.claims.judge import Judgement
from normlab.claims.ledger import Entry, Outcome
from normlab.claims.seeds import Endpoint

ADDRESS = "results/norms/cpu:{}@seed{}"
COMMAND = "normlab study run norms scale=small"


def endpoint(**changes: Any) -> Contrast:
    values: dict[str, Any] = {
        "study": "norms",
        "scale": "small",
        "scores": ("test/bleu",),
        "better": {"norm": "ln"},
        "worse": {"norm": "bn"},
        "margin": 0.5,
        **changes,
    }
    return Contrast(**values)


def outcome(asked: Endpoint, *values: Any) -> Outcome:
    return Outcome(0, Part("a", "b", "difference", asked), asked, *values)


def compared(verdict: Any, n: int = 5, **changes: Any) -> Outcome:
    """Return a contrast of records with its figures and folders."""
    values: dict[str, Any] = {
        "found": "-2.27 [-3.45, -1.09]",
        "detail": "34.6 against 36.8",
        "p": 0.0012,
        "p_look": 0.006,
        "n": n,
        "confidence": 0.99,
        "grade": "C",
        "setting": "Multi30k, 2+2 layers",
        "records": tuple(ADDRESS.format(norm, k + 1) for norm in ("ln", "bn") for k in range(n)),
        **changes,
    }
    asked = values.pop("endpoint", endpoint())
    reason = values.get("reason", "")
    return outcome(asked, Judgement(verdict, **values), verdict, reason, 0.012)


def open_outcome(verdict: Any = "not measured", **changes: Any) -> Outcome:
    values: dict[str, Any] = {
        "reason": "no runs",
        "command": COMMAND,
        "cost": "30 runs, about 2.0 h",
        **changes,
    }
    return outcome(endpoint(), Judgement(verdict, **values), verdict, values["reason"])


def computed(verdict: Any) -> Outcome:
    finding = Judgement(verdict, found="bn: it moves by 21 %", grade="D")
    return outcome(Computed("a.b"), finding, verdict)


def awaited() -> Outcome:
    reason = "There is no task of pictures."
    asked = Published("missing", reason)
    return outcome(asked, Judgement("not measured", reason=reason), "not measured", reason)


def decided(name: str, *outcomes: Outcome, statement: str = "") -> list[Outcome]:
    """Return outcomes of one part, the primary one first."""
    said = statement or f"It is so ({name})."
    part = Part(name, said, "difference", outcomes[0].endpoint)
    return [replace(each, part=part) for each in outcomes]


def entry(number: int, *parts: list[Outcome], **changes: Any) -> Entry:
    values: dict[str, Any] = {
        "path": f"{number:02}_claim.yaml",
        "documents": ("D0",),
        "statement": f"Statement {number}.",
        "figure": None,
        "literature": "Nothing is known.",
        **changes,
    }
    claim = Claim(id=number, parts=tuple(each[0].part for each in parts), **values)
    parts = tuple([replace(each, claim=number) for each in part] for part in parts)
    secondary = tuple(each for part in parts for each in part[1:])
    return Entry(claim, tuple(part[0] for part in parts), secondary)


def entries() -> list[Entry]:
    """Return a claim of each verdict."""
    return [
        entry(
            1,
            decided("defined", computed("supported")),
            figure="35.2 BLEU",
            documents=("D0", "D1"),
        ),
        entry(
            2,
            decided("worse", compared("contradicted"), compared("undecided", found="1 [0, 2]")),
            decided("by_much", compared("no difference")),
            documents=("D2",),
            see=("results/LOG.md",),
        ),
        entry(
            3,
            decided("worse", compared("supported")),
            decided("size", compared("undecided", reason="its size is open")),
            literature="Pictures only.",
        ),
        entry(4, decided("open", compared("undecided", reason="its size is open"))),
        entry(
            12,
            decided("pictures", awaited()),
            decided("words", open_outcome(excluded=("tested weights chosen by loss: 3",))),
        ),
    ]
