"""The ledger as a Markdown page, and its summary in English and Chinese.

The text is in `templates/`. The summary is also in Chinese because the articles are. The same
evidence always gives the same bytes.
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

from normlab.claims.decision import p_text
from normlab.claims.ledger import VERDICTS, JudgedClaim, JudgedPart
from normlab.claims.texts import (
    grade_in_chinese,
    observed_p,
    outcome_text,
    part_text,
    seeds_text,
    value_text,
    verdict_text,
)
from normlab.claims.verdict import DECIDED, PARTS
from normlab.records.labels import in_markdown
from normlab.records.packed import RECORDS, address_of
from normlab.templates import environment

_HOME = "results"


def markdown(entries: Sequence[JudgedClaim]) -> str:
    """Return the Markdown of the page `results/claims.md`."""
    counts = Counter(entry.verdict for entry in entries)
    tally = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
    return _filled("ledger.md", {"claims": entries, "counts": tally, "meanings": VERDICTS})


def summary(entries: Sequence[JudgedClaim]) -> str:
    """Return the Markdown of `results/summary.md`, which has a line per claim and part."""
    return _filled("summary.md", {"claims": list(map(_summarized, entries))})


def _filled(template: str, values: Mapping[str, Any]) -> str:
    filters: dict[str, Callable[..., Any]] = {
        "bold": _bold,
        "cells": lambda row: " | ".join(map(in_markdown, row)),
        "folded": lambda text: fill(text, 100),
        "notes": lambda outcome: list(_notes(outcome)),
        "part_text": part_text,
        "relative": lambda path: posixpath.relpath(path, _HOME),
        "row": _row,
        "verdict_text": verdict_text,
    }
    jinja = environment("normlab.claims")
    jinja.filters |= filters
    return jinja.get_template(template).render(values)


def _summarized(entry: JudgedClaim) -> dict[str, Any]:
    """Return a claim's entry in the summary: its parts by verdict, its texts by language."""
    claim = entry.claim
    order = {verdict: place for place, verdict in enumerate(PARTS)}
    return {
        "id": claim.id,
        "verdict": entry.verdict,
        "statement": _by_language(claim.statement, claim.chinese or claim.statement),
        "answer": _by_language(claim.answer, claim.chinese_answer),
        "parts": [
            _summarized_part(outcome)
            for outcome in sorted(entry.primary, key=lambda each: order[each.verdict])
        ],
    }


def _summarized_part(outcome: JudgedPart) -> dict[str, Any]:
    """Return a part's entry in the summary. Only a decided part has a grade."""
    part, graded = outcome.part, outcome.verdict in DECIDED and outcome.grade
    statements = _by_language(part.statement, part.chinese or part.statement)
    return {
        "verdict": outcome.verdict,
        "statement": {code: text.rstrip(".。") for code, text in statements.items()},
        "grade": {"en": outcome.grade, "zh": grade_in_chinese(outcome)} if graded else {},
    }


def _by_language(english: str, chinese: str) -> dict[str, str]:
    return {"en": in_markdown(english), "zh": in_markdown(chinese)}


def _notes(outcome: JudgedPart) -> Iterator[str]:
    """Yield lines with the command that measures a part, and with its runs that do not count."""
    part = f"- Part {outcome.number}"
    if measure := outcome.judgement.to_measure:
        yield f"{part}, to measure: `{measure.command}` ({measure.cost})"
    if excluded := outcome.basis.excluded:
        yield f"{part}, runs that do not count: {'; '.join(excluded)}"


def _row(outcome: JudgedPart) -> list[str]:
    return [
        str(outcome.number),
        outcome.question,
        " ".join(filter(None, (value_text(outcome), _links(outcome)))) or "-",
        seeds_text(outcome) or "-",
        p_text(observed_p(outcome)),
        p_text(outcome.p_holm),
        _bold(outcome_text(outcome), outcome.verdict),
    ]


def _links(outcome: JudgedPart) -> str:
    """Return a link to each file that an outcome is based on, with the rows of its records."""
    files: dict[str, dict[str, None]] = {}
    for path in outcome.basis.records:
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
