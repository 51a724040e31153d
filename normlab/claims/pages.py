"""The ledger as a Markdown page, and its summary in English and Chinese.

The text is in `templates/`. The summary is also in Chinese because the articles are. The same
evidence always gives the same bytes.
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

from normlab.claims.ledger import JudgedClaim, JudgedPart
from normlab.claims.texts import (
    grade_in_chinese,
    observed_p,
    p_text,
    part_text,
    part_verdict_text,
    seeds_text,
    value_text,
    verdict_text,
)
from normlab.claims.verdict import CLAIM_VERDICTS, DECIDED, PART_VERDICTS
from normlab.records.labels import in_markdown
from normlab.records.packed import RECORDS, address_of
from normlab.templates import environment

_HOME = "results"


def markdown(judged_claims: Sequence[JudgedClaim]) -> str:
    """Return the Markdown of the page `results/claims.md`."""
    counts = Counter(judged_claim.verdict for judged_claim in judged_claims)
    tally = ", ".join(f"{counts[name]} {name}" for name in CLAIM_VERDICTS)
    return _filled(
        "ledger.md", {"claims": judged_claims, "counts": tally, "meanings": CLAIM_VERDICTS}
    )


def summary(judged_claims: Sequence[JudgedClaim]) -> str:
    """Return the Markdown of `results/summary.md`, which has a line per claim and part."""
    return _filled("summary.md", {"claims": list(map(_summarized, judged_claims))})


def _filled(template: str, values: Mapping[str, Any]) -> str:
    filters: dict[str, Callable[..., Any]] = {
        "bold": _bold,
        "cells": lambda row: " | ".join(map(in_markdown, row)),
        "folded": lambda text: fill(text, 100),
        "notes": lambda judged_part: list(_notes(judged_part)),
        "part_text": part_text,
        "relative": lambda path: posixpath.relpath(path, _HOME),
        "row": _row,
        "verdict_text": verdict_text,
    }
    jinja = environment("normlab.claims")
    jinja.filters |= filters
    return jinja.get_template(template).render(values)


def _summarized(judged_claim: JudgedClaim) -> dict[str, Any]:
    """Return a claim's entry in the summary. Its parts are sorted by verdict."""
    claim = judged_claim.claim
    order = {verdict: place for place, verdict in enumerate(PART_VERDICTS)}
    return {
        "id": claim.id,
        "verdict": judged_claim.verdict,
        "statement": _by_language(claim.statement, claim.chinese or claim.statement),
        "answer": _by_language(claim.answer, claim.chinese_answer),
        "parts": [
            _summarized_part(judged_part)
            for judged_part in sorted(judged_claim.primary, key=lambda each: order[each.verdict])
        ],
    }


def _summarized_part(judged_part: JudgedPart) -> dict[str, Any]:
    """Return a part's entry in the summary. Only a decided part has a grade."""
    part, graded = judged_part.part, judged_part.verdict in DECIDED and judged_part.grade
    statements = _by_language(part.statement, part.chinese or part.statement)
    return {
        "verdict": judged_part.verdict,
        "statement": {code: text.rstrip(".。") for code, text in statements.items()},
        "grade": {"en": judged_part.grade, "zh": grade_in_chinese(judged_part)} if graded else {},
    }


def _by_language(english: str, chinese: str) -> dict[str, str]:
    return {"en": in_markdown(english), "zh": in_markdown(chinese)}


def _notes(judged_part: JudgedPart) -> Iterator[str]:
    """Yield a line with the command that measures a part, and one on runs that do not count."""
    part = f"- Part {judged_part.number}"
    if measure := judged_part.to_measure:
        yield f"{part}, to measure: `{measure.command}` ({measure.cost})"
    if excluded := judged_part.basis.excluded:
        yield f"{part}, runs that do not count: {'; '.join(excluded)}"


def _row(judged_part: JudgedPart) -> list[str]:
    return [
        str(judged_part.number),
        judged_part.question,
        " ".join(filter(None, (value_text(judged_part), _links(judged_part)))) or "-",
        seeds_text(judged_part) or "-",
        p_text(observed_p(judged_part)),
        p_text(judged_part.p_holm),
        _bold(part_verdict_text(judged_part), judged_part.verdict),
    ]


def _links(judged_part: JudgedPart) -> str:
    """Return links to the files behind a part's verdict, each with the rows of its records."""
    files: dict[str, dict[str, None]] = {}
    for path in judged_part.basis.records:
        packed = address_of(path, packed=False)
        file = path if packed is None else f"{packed.folder}/{RECORDS}"
        rows = files.setdefault(posixpath.relpath(file, _HOME), {})
        if packed is not None:
            rows[packed.name] = None
    links = []
    for link, rows in files.items():
        name = posixpath.dirname(link) if rows else posixpath.basename(link)
        links.append(f"[{name}]({link})" + (f": {', '.join(rows)}" if rows else ""))
    return "; ".join(links)


def _bold(text: str, verdict: str) -> str:
    return f"**{verdict}**{text.removeprefix(verdict)}"
