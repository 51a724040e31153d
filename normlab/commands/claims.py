"""`normlab claims`: what the documents assert, what was measured, and the verdict."""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._terminal import complain, print_prose, print_table
from normlab.records.store import without_collection
from normlab.registry import CONFIG_DIR, options

if TYPE_CHECKING:
    from normlab.claims.evidence import Evidence
    from normlab.claims.ledger import Entry

HELP = "the ledger: every claim of the documents, its figure, the evidence, the verdict"

_EXAMPLES = """examples:
  normlab claims                        every claim and its verdict, from the committed records
  normlab claims 7                      one claim with all its evidence
  normlab claims --check                compute what is decided in seconds, too
  normlab claims 40 --runs-dir runs     with the runs below runs/ as well
  normlab claims --write                write results/claims.md and claims.html, checks computed
  normlab claims --json                 the ledger for programs
"""
_CHECKOUT = CONFIG_DIR.parent
_RESULTS = _CHECKOUT / "results"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab claims",
        description="Show " + HELP + ".",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("id", nargs="?", type=int, help="show this claim with all its evidence")
    result.add_argument("--check", action="store_true", help="compute the unit claims now")
    result.add_argument(
        "--write",
        nargs="?",
        type=Path,
        const=_RESULTS / "claims.md",
        metavar="FILE",
        help="write the ledger as Markdown and beside it as a page for a browser, .html, checks "
        "computed; default: results/claims.md",
    )
    result.add_argument("--json", action="store_true", help="print JSON")
    result.add_argument(
        "--runs-dir",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="records besides the committed ones; may be repeated",
    )
    result.add_argument(
        "--results", type=Path, default=_RESULTS, metavar="DIR", help="the committed records"
    )
    return result


@without_collection()
def main(argv: list[str]) -> int:
    """Show or write the ledger; 1 where a record is damaged, which is said.

    Raises `ValueError` for a claim that does not exist and for a claim's file that is wrong.
    """
    arguments = parser().parse_args(argv)
    from normlab.claims.claim import load_all
    from normlab.claims.ledger import ledger, to_plain
    from normlab.claims.runs import Runs

    if arguments.write and (arguments.runs_dir or arguments.id is not None):
        raise ValueError("--write takes all claims and the committed records alone")
    if arguments.write and arguments.write.suffix != ".md":
        raise ValueError(f"--write {arguments.write}: name the Markdown page, ending in .md")
    claims = load_all(CONFIG_DIR / "claim")
    if arguments.id is not None:
        chosen = [claim for claim in claims if claim.id == arguments.id]
        if not chosen:
            raise ValueError(f"no claim {arguments.id}; there are 1 to {claims[-1].id}")
        claims = chosen
    runs = Runs.read([arguments.results, *arguments.runs_dir], root=_CHECKOUT)
    compute: "Callable[[str], list[Evidence]] | None" = None
    if arguments.check or arguments.write:
        from normlab import checks

        compute = checks.run
    entries = ledger(claims, runs, compute)
    if arguments.write:
        _write(entries, arguments.write)
    elif arguments.json:
        print(json.dumps(to_plain(entries), indent=1, sort_keys=True))
    elif arguments.id is not None:
        _show(entries[0])
    else:
        _list(entries, computed=compute is not None)
    for message in runs.damaged:
        complain(message)
    return 1 if runs.damaged else 0


def _write(entries: Sequence["Entry"], path: Path) -> None:
    """Write both pages, or neither where one cannot be made."""
    from normlab.claims import html, markdown
    from normlab.records.atomic import atomic_write

    studies = {study.name: study.command for study in options("study")}
    pages = {
        path: markdown.page(entries),
        path.with_suffix(".html"): html.page(entries, studies=studies, text=path.name),
    }
    for place, text in pages.items():
        with atomic_write(place) as file:
            file.write(text)
        print(f"wrote {place}")


def _list(entries: Sequence["Entry"], *, computed: bool) -> None:
    rows = [
        [
            str(entry.claim.id),
            entry.claim.statement,
            " ".join(entry.claim.documents),
            entry.claim.figure or "-",
            entry.verdict,
            entry.strength,
        ]
        for entry in entries
    ]
    counts = Counter(entry.verdict for entry in entries)
    notes = [", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))]
    if not computed:
        notes.append("--check computes what needs no records; without it such claims wait.")
    notes.append("`normlab claims N` shows the evidence for a claim.")
    columns = ["#", "claim", "from", "its figure", "verdict", "rests on"]
    print_table(columns, rows, notes=notes, numeric=["#"])


def _show(entry: "Entry") -> None:
    claim = entry.claim
    print_prose(f"Claim {claim.id} ({', '.join(claim.documents)}): {claim.statement}")
    facts = {
        "Its figure": claim.figure,
        "Expected": claim.expected,
        "Literature": claim.literature,
        "Missing": claim.missing,
        "See also": ", ".join(claim.see) or None,
        "Verdict": f"{entry.verdict} ({entry.strength})",
    }
    for name, text in facts.items():
        if text is not None:
            print_prose(f"{name}: {text}", indent="  ")
    if not entry.evidence:
        return
    rows = [
        [
            piece.standing,
            piece.question,
            piece.finding,
            str(piece.n) if piece.n else "-",
            " ".join(part for part in (piece.task, piece.scale, piece.setting) if part) or "-",
        ]
        for piece in sorted(entry.evidence, key=lambda piece: not piece.measured)
    ]
    print()
    notes = list(dict.fromkeys(folder for piece in entry.evidence for folder in piece.records))
    print_table(["it", "asked", "found", "n", "of"], rows, notes=notes, numeric=["n"])
