"""The ledger as a Markdown page, byte-identical for the same evidence."""

import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill

from normlab.claims.claim import Part
from normlab.claims.judge import p_text
from normlab.claims.ledger import VERDICTS, Entry, Outcome
from normlab.records.labels import in_markdown
from normlab.records.packed import RECORDS, Address

_COLUMNS = ("part", "question", "found", "seeds", "p", "corrected", "verdict")
_HOME = "results"
_WRITTEN = (
    "Written by `normlab claims --write` from the committed records and the computed checks; do "
    "not edit. `normlab claims N` shows a claim in the terminal, `normlab claims --verify` "
    "verifies this page."
)
_CARE = (
    "**Read with care.** A verdict holds for the data, the size and the settings that its grade "
    "names, not for the documents' own experiments, whose code is unknown. Only grade A is about "
    "these."
)
_RULES = (
    "[How verdicts are made](../docs/explanation/verdicts.md) says how parts are decided and "
    "corrected."
)
_MEANINGS: Mapping[str, str] = {
    "supported": "every part is supported",
    "contradicted": "every part is contradicted, or shows no difference",
    "mixed": "its parts have different verdicts, which are named",
    "undecided": "measured, but no part is decided",
    "not measured": "no evidence counts yet",
}


def verdict_text(entry: Entry) -> str:
    """Return the verdict with its grades, such as `contradicted (C: Multi30k, 2+2 layers)`."""
    about = [entry.by_parts if entry.verdict == "mixed" else "", entry.grades]
    said = "; ".join(filter(None, about))
    return f"{entry.verdict} ({said})" if said else entry.verdict


def part_text(part: Part) -> str:
    """Return the statement of a part, with its note."""
    return f"{part.statement} ({part.note})" if part.note else part.statement


def outcome_text(outcome: Outcome) -> str:
    """Return the verdict of an endpoint with its grade."""
    return f"{outcome.verdict} ({outcome.grade})" if outcome.grade else outcome.verdict


def found_text(outcome: Outcome) -> str:
    """Return the value with its interval, the values behind it, and the reason if it is open."""
    found = outcome.finding
    said = f"{found.found} ({found.detail})" if found.found and found.detail else ""
    return "; ".join(filter(None, (said or found.found or found.detail, outcome.reason)))


def seeds_text(outcome: Outcome) -> str:
    """Return the number of seeds or rounds, and the confidence of the interval."""
    found = outcome.finding
    if not found.n:
        return ""
    text = f"{found.n} {found.repeats}{'s' if found.n != 1 else ''}"
    return text if found.confidence is None else f"{text}, {100 * found.confidence:g} %"


def test_text(outcome: Outcome) -> str:
    """Return the p value before and after correction, and the seeds; "" if nothing was tested."""
    if outcome.finding.p is None:
        return ""
    holm = "" if outcome.p_holm is None else f" (corrected {p_text(outcome.p_holm)})"
    return f"p {p_text(outcome.finding.p)}{holm}, {seeds_text(outcome)}"


def measure_text(outcome: Outcome) -> str:
    """Return the command that measures more, with its cost; "" if there is none."""
    found = outcome.finding
    return "" if found.command is None else f"`{found.command}` ({found.cost})"


def markdown(entries: Sequence[Entry]) -> str:
    """Return the page in Markdown, `results/claims.md`."""
    counts = Counter(entry.verdict for entry in entries)
    said = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
    meanings = "; ".join(f"*{name}*: {meaning}" for name, meaning in _MEANINGS.items())
    rows = [
        [
            f"[{(claim := entry.claim).id}](#claim-{claim.id})",
            claim.statement,
            " ".join(claim.documents),
            claim.figure or "-",
            _bold(verdict_text(entry), entry.verdict),
        ]
        for entry in entries
    ]
    blocks = [
        "# The claims of the documents, and what was found",
        *(fill(text, 100) for text in (_WRITTEN, _CARE, f"{meanings}. {_RULES}")),
        f"{len(entries)} claims: {said}.",
        _table(["#", "claim", "from", "its value", "verdict"], rows),
        *(_section(entry) for entry in entries),
    ]
    return "\n\n".join(blocks) + "\n"


def _section(entry: Entry) -> str:
    claim = entry.claim
    figure = f"; its value: {claim.figure}" if claim.figure else ""
    see = ", ".join(f"[{path}]({posixpath.relpath(path, _HOME)})" for path in claim.see)
    facts = [
        f"- Verdict: {_bold(verdict_text(entry), entry.verdict)}",
        f"- Literature: {claim.literature.strip()}",
        *([f"- See also: {see}"] if see else []),
        *(f"- {each.name}: {part_text(each.part)}" for each in entry.primary),
    ]
    blocks = [
        f"## Claim {claim.id}",
        f"{claim.statement} ({', '.join(claim.documents)}{figure})",
        "\n".join(facts),
        _table(_COLUMNS, map(_row, entry.primary)),
    ]
    lines: list[str] = []
    for outcome in entry.primary:
        if measure := measure_text(outcome):
            lines.append(f"- {outcome.name}, to measure: {measure}")
        if excluded := outcome.finding.excluded:
            lines.append(f"- {outcome.name}, runs that do not count: {'; '.join(excluded)}")
    if lines:
        blocks.append("\n".join(lines))
    if entry.secondary:
        table = _table(_COLUMNS, map(_row, entry.secondary))
        blocks += ["<details><summary>Secondary, never counted</summary>", table, "</details>"]
    return "\n\n".join(blocks)


def _row(outcome: Outcome) -> list[str]:
    rests = rests_on(outcome)
    links = [f"[{name}]({link})" + (f": {rows}" if rows else "") for name, link, rows in rests]
    return [
        outcome.name,
        outcome.question,
        " ".join(filter(None, (found_text(outcome), "; ".join(links)))) or "-",
        seeds_text(outcome) or "-",
        p_text(outcome.finding.p),
        p_text(outcome.p_holm),
        _bold(outcome_text(outcome), outcome.verdict),
    ]


def rests_on(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Return the name, link and record rows of each file that an outcome is based on."""
    links: dict[str, dict[str, None]] = {}
    for path in outcome.finding.records:
        packed = Address.of(path)
        file = path if packed is None else f"{packed.folder}/{RECORDS}"
        rows = links.setdefault(posixpath.relpath(file, _HOME), {})
        if packed is not None:
            rows[packed.name] = None
    return [
        (posixpath.dirname(link) if rows else posixpath.basename(link), link, ", ".join(rows))
        for link, rows in links.items()
    ]


def _bold(text: str, verdict: str) -> str:
    return f"**{verdict}**{text.removeprefix(verdict)}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(in_markdown(cell) for cell in row) + " |" for row in cells)
