"""Decides the page of the ledger, `results/claims.md`: the same bytes for the same evidence."""

import posixpath
from collections import Counter
from collections.abc import Sequence

from normlab.claims.evidence import VERDICTS, Evidence
from normlab.claims.ledger import Entry

HOME = "results"
_OPENING = """# The claims of the documents, and what was found

Written by `normlab claims --write` from the committed records and from what the checks compute; do
not edit. `normlab claims N` shows a claim in the terminal.

**Read with care.** The records are small: Multi30k is not IWSLT'14, and `scale=cpu` is 2+2 layers
for 2,000 updates. A verdict is about the task, scale and settings that its lines name, not about
the documents' own experiments, of which no code is known.

- *supported*: every piece that was measured supports the claim; *contradicted*: some contradict and
  none supports; *partly*: some support, others contradict or leave it open; *not measured*: nothing
  decides yet.
- A comparison of records pairs the seeds that both sides have, at least three, at settings that are
  otherwise equal. `a [b, c]` is the mean difference with its 95 % t interval, in the claimed
  direction, beside both means. It supports above the margin (0 unless said) and contradicts below.
- "Computed" pieces are figures of the norms themselves, in float64, by
  `normlab claims --check`. They decide what a norm does; what that costs a trained model only
  records decide.
- Settings with too few seeds are counted and not shown; `normlab claims N` lists them.
"""


def page(entries: Sequence[Entry]) -> str:
    """Return the whole page."""
    counts = Counter(entry.verdict for entry in entries)
    said = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
    parts = [_OPENING, f"{len(entries)} claims: {said}.\n", _summary(entries)]
    return "\n".join([*parts, *(_section(entry) for entry in entries)])


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
        links = ", ".join(f"[{path}]({_link(path)})" for path in claim.see)
        lines.append(f"- See also: {links}")
    shown = [piece for piece in entry.evidence if piece.measured]
    # A setting with too few seeds decides nothing; it is counted above, and the command lists it.
    if shown:
        rows = [_row(piece) for piece in shown]
        lines += ["", _table(["asked", "found", "so it", "seeds", "runs"], rows).rstrip()]
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
    folders = dict.fromkeys(posixpath.dirname(folder) for folder in piece.records)
    links = " ".join(f"[{n}]({_link(folder)})" for n, folder in enumerate(folders, 1))
    return f"{where}: {links}"


def _link(path: str) -> str:
    return posixpath.relpath(path, HOME)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells
    )
