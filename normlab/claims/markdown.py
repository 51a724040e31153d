"""Decides the page of the ledger, `results/claims.md`: the same bytes for the same evidence."""

import posixpath
from collections import Counter
from collections.abc import Sequence
from textwrap import fill

from normlab.claims.evidence import VERDICTS, Evidence
from normlab.claims.ledger import Entry
from normlab.claims.reading import CARE, MEANINGS, NOTES, TITLE, WRITTEN, address

_WIDTH = 100
_FOLDED = "Settings with too few seeds are counted and not shown; `normlab claims N` lists them."


def page(entries: Sequence[Entry]) -> str:
    """Return the whole page."""
    counts = Counter(entry.verdict for entry in entries)
    said = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
    parts = [_opening(), f"{len(entries)} claims: {said}.\n", _summary(entries)]
    return "\n".join([*parts, *(_section(entry) for entry in entries)])


def _opening() -> str:
    meanings = "; ".join(f"*{name}*: {meaning}" for name, meaning in MEANINGS.items())
    notes = [
        fill(note, _WIDTH, initial_indent="- ", subsequent_indent="  ")
        for note in (f"{meanings}.", *NOTES, _FOLDED)
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
            f"**{entry.verdict}**",
            entry.strength,
        ]
        for entry in entries
    ]
    return _table(["#", "claim", "from", "its figure", "verdict", "rests on"], rows)


def _section(entry: Entry) -> str:
    claim = entry.claim
    lines = [
        f"## Claim {claim.id}",
        "",
        f"{claim.statement} ({', '.join(claim.documents)}"
        + (f"; its figure: {claim.figure})" if claim.figure else ")"),
        "",
        f"- Verdict: **{entry.verdict}** ({entry.strength})",
        f"- The documents expect: {claim.expected}",
        f"- Literature: {claim.literature}",
    ]
    if claim.missing:
        lines.append(f"- Missing: {claim.missing}")
    if claim.see:
        links = ", ".join(f"[{path}]({address(path)})" for path in claim.see)
        lines.append(f"- See also: {links}")
    shown = [piece for piece in entry.evidence if piece.measured]
    # A setting with too few seeds decides nothing; it is counted above, and the command lists it.
    if shown:
        rows = [_row(piece) for piece in shown]
        lines += ["", _table(["asked", "found", "so it", "n", "of"], rows).rstrip()]
    return "\n".join([*lines, ""])


def _row(piece: Evidence) -> list[str]:
    return [
        piece.question,
        piece.finding,
        piece.standing,
        str(piece.n) if piece.n else "-",
        _runs(piece),
    ]


def _runs(piece: Evidence) -> str:
    if not piece.records:
        return "-"
    where = " ".join(part for part in (piece.task, piece.scale, piece.setting) if part)
    if piece.kind == "timing":
        return f"{where}: [{posixpath.basename(piece.records[0])}]({address(piece.records[0])})"
    folders = dict.fromkeys(posixpath.dirname(folder) for folder in piece.records)
    links = " ".join(f"[{n}]({address(folder)})" for n, folder in enumerate(folders, 1))
    return f"{where}: {links}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells
    )
