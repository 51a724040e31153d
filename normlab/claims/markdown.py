"""The page of the ledger in Markdown, `results/claims.md`: the same bytes for the same evidence."""

import posixpath
from collections import Counter
from collections.abc import Sequence
from textwrap import fill

from normlab.claims.ledger import VERDICTS, Decided, Entry, Outcome
from normlab.claims.reading import (
    CARE,
    HOURS,
    MEANINGS,
    NOTES,
    TITLE,
    WRITTEN,
    address,
    found_text,
    measure_text,
    outcome_text,
    p_corrected,
    p_found,
    part_text,
    seeds_text,
    tune_first,
    verdict_text,
)
from normlab.records.text import in_markdown

_WIDTH = 100
_COLUMNS = ("part", "asked", "found", "seeds", "p", "corrected", "so it is")


def page(entries: Sequence[Entry]) -> str:
    """Return the whole page."""
    counts = Counter(entry.verdict for entry in entries)
    said = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
    parts = [_opening(), f"{len(entries)} claims: {said}.\n", _summary(entries), _rest(entries)]
    return "\n".join([*parts, *(_section(entry) for entry in entries)])


def _opening() -> str:
    meanings = "; ".join(f"*{name}*: {meaning}" for name, meaning in MEANINGS.items())
    notes = [
        fill(note, _WIDTH, initial_indent="- ", subsequent_indent="  ")
        for note in (f"{meanings}.", *NOTES)
    ]
    parts = [fill(WRITTEN, _WIDTH), fill(f"**Read with care.** {CARE}", _WIDTH), "\n".join(notes)]
    return "\n\n".join([f"# {TITLE}", *parts]) + "\n"


def _summary(entries: Sequence[Entry]) -> str:
    rows = [
        [
            f"[{entry.claim.id}](#claim-{entry.claim.id})",
            entry.claim.statement,
            " ".join(entry.claim.documents),
            entry.claim.figure or "-",
            _bold(verdict_text(entry), entry.verdict),
        ]
        for entry in entries
    ]
    return _table(["#", "claim", "from", "its figure", "verdict"], rows)


def _rest(entries: Sequence[Entry]) -> str:
    """Return what would decide the parts that are open, a line a command; "" where none are."""
    open_parts: dict[str, list[tuple[str, Outcome]]] = {}
    for entry in entries:
        for each in entry.parts:
            if (command := each.primary.finding.command) is not None:
                name = f"[{entry.claim.id}](#claim-{entry.claim.id}) {_named(each)}"
                open_parts.setdefault(command, []).append((name, each.primary))
    if not open_parts:
        return ""
    rows: list[list[str]] = []
    for command, parts in sorted(open_parts.items()):
        first = next((f"`{said}`, then " for _, of in parts if (said := tune_first(of)[0])), "")
        cost = parts[0][1].finding.cost or "-"
        rows.append([", ".join(name for name, _ in parts), f"{first}`{command}`", cost])
    table = _table(["parts", "to measure", "cost"], rows)
    return f"## What would decide the rest\n\n{fill(HOURS, _WIDTH)}\n\n{table}"


def _section(entry: Entry) -> str:
    claim = entry.claim
    lines = [
        f"## Claim {claim.id}",
        "",
        f"{claim.statement} ({', '.join(claim.documents)}"
        + (f"; its figure: {claim.figure})" if claim.figure else ")"),
        "",
        f"- Verdict: {_bold(verdict_text(entry), entry.verdict)}",
        f"- Literature: {claim.literature.strip()}",
    ]
    if claim.see:
        links = ", ".join(f"[{path}]({address(path)})" for path in claim.see)
        lines.append(f"- See also: {links}")
    lines += [f"- {_named(each)}: {part_text(each.part)}" for each in entry.parts]
    rows = [_row(_named(each), each.primary) for each in entry.parts]
    lines += ["", _table(_COLUMNS, rows).rstrip()]
    lines += _open(entry.parts)
    beside = [(_named(each), outcome) for each in entry.parts for outcome in each.secondary]
    if beside:
        table = _table(_COLUMNS, [_row(name, outcome) for name, outcome in beside]).rstrip()
        lines += ["", "<details><summary>Secondary, never counted</summary>", "", table]
        lines += ["", "</details>"]
    return "\n".join([*lines, ""])


def _open(parts: Sequence[Decided]) -> list[str]:
    """Say of each part that is not decided what would measure more, and which runs do not count."""
    lines: list[str] = []
    for each in parts:
        if measure := measure_text(each.primary):
            lines.append(f"- {_named(each)}, to measure: {measure}")
        if each.primary.finding.excluded:
            lines.append(
                f"- {_named(each)}, runs that decide nothing: "
                + "; ".join(each.primary.finding.excluded)
            )
    return ["", *lines] if lines else []


def _row(name: str, outcome: Outcome) -> list[str]:
    return [
        name,
        outcome.question,
        " ".join(part for part in (found_text(outcome), _links(outcome)) if part) or "-",
        seeds_text(outcome) or "-",
        p_found(outcome),
        p_corrected(outcome),
        _bold(outcome_text(outcome), outcome.verdict),
    ]


def _links(outcome: Outcome) -> str:
    """Return links to the folders of the experiments, or to the report, that it rests on."""
    paths = outcome.finding.records
    files = [path for path in paths if path.endswith(".json")]
    folders = dict.fromkeys(posixpath.dirname(path) for path in paths if path not in files)
    named = [f"[{posixpath.basename(path)}]({address(path)})" for path in files]
    named += [f"[{n}]({address(folder)})" for n, folder in enumerate(folders, 1)]
    return " ".join(named)


def _named(decided: Decided) -> str:
    return decided.part.name.replace("_", " ")


def _bold(text: str, verdict: str) -> str:
    """Set a verdict in bold, its grade beside it."""
    return f"**{verdict}**{text.removeprefix(verdict)}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(in_markdown(cell) for cell in row) + " |\n" for row in cells)
