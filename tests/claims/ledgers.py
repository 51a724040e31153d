"""Ledgers for tests of pages, made by hand."""

from typing import Any

from normlab.claims.claim import Claim
from normlab.claims.evidence import Evidence
from normlab.claims.html import page
from normlab.claims.ledger import Entry

FOLDER = "results/norms/cpu/records/toy-{}-pre-0123456789/seed{}"
STUDIES = {"norms": "normlab reproduce norms scale=cpu"}


def claim(number: int, **changes: Any) -> Claim:
    values: dict[str, Any] = {
        "name": f"{number:02}_claim",
        "documents": ("D0",),
        "statement": f"Statement {number}.",
        "figure": None,
        "decided": "study",
        "expected": "as stated",
        "literature": "Nothing is known.",
        **changes,
    }
    return Claim(id=number, **values)


def compared(standing: Any, n: int = 3, **changes: Any) -> Evidence:
    """Return a comparison of records with its figures and folders."""
    values: dict[str, Any] = {
        "question": "test/bleu better with norm=ln than with norm=bn",
        "finding": "-2.27 [-3.45, -1.09] (34.6 against 36.8); norm=bn diverged 1/3",
        "numbers": {"mean": -2.27, "low": -3.45, "high": -1.09, "first": 34.6, "second": 36.8},
        "task": "toy",
        "scale": "cpu",
        "setting": "pre norm.padding=include",
        "records": tuple(FOLDER.format(norm, k + 1) for norm in ("ln", "bn") for k in range(n)),
        **changes,
    }
    return Evidence("study", standing=standing, n=n, **values)


def computed(standing: Any, **numbers: float) -> Evidence:
    return Evidence("unit", "bn: it moves", "it moves by 21 %", standing, numbers)


def entries() -> list[Entry]:
    """Return a claim of each verdict."""
    return [
        Entry(
            claim(1, decided="unit", check="a.b", figure="35.2 BLEU", documents=("D0", "D1")),
            (computed("supports", moved=0.21234, noise=8e-17),),
        ),
        Entry(
            claim(2, study="norms", documents=("D2",), see=("results/LOG.md",)),
            (compared("contradicts"), compared("too few seeds", 1)),
        ),
        Entry(
            claim(3, study="nowhere", literature="Pictures only."),
            (compared("supports"), compared("undecided")),
        ),
        Entry(claim(12, study="norms", missing="There is no task of pictures."), ()),
    ]


def made() -> str:
    """Return the page of that ledger."""
    return page(entries(), studies=STUDIES, text="claims.md")
