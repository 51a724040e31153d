"""`normlab claims`: what the documents assert, what was measured, and the verdict."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._arguments import as_path, command_parser
from normlab.commands._terminal import complain, print_prose
from normlab.config.registry import CONFIG_DIR
from normlab.records.store import without_collection

if TYPE_CHECKING:
    from normlab.claims.claim import Claim
    from normlab.claims.ledger import Entry, Outcome
    from normlab.claims.runs import Runs

_EXAMPLES = """examples:
  normlab claims                  every claim and its verdict
  normlab claims 7                one claim, its parts, endpoints, evidence
  normlab claims --compute        recompute the checks that take seconds
  normlab claims --verify         do the committed pages follow from the records?
  normlab claims 40 --runs-dir runs  with the runs below runs/ as well
  normlab claims --write          rewrite its pages in results/
  normlab claims --html           the ledger for a browser
  normlab claims --json           the ledger for programs

Without --compute, which needs torch and a few seconds, the findings of the checks are those of the
last --write, in results/computed.json. --verify computes nothing and changes nothing.
"""
_CHECKOUT = CONFIG_DIR.parent
_RESULTS = _CHECKOUT / "results"
_PAGE, _SUMMARY, _COMPUTED, _HTML = "claims.md", "summary.md", "computed.json", "claims.html"
_IN_RESULTS = Path(_PAGE)  # for --write without a file
_VERDICT = 14  # columns that the longest verdict takes, with a gap


@without_collection()
def main(argv: list[str]) -> int:
    """Show, write or verify the ledger; 1 if a record is damaged or a page is stale.

    Raises `ValueError` for a claim that does not exist and for a claim's file that is wrong.
    """
    does = "Show the ledger: every claim, its parts, what decides them, the verdict."
    parser = command_parser("claims", does, _EXAMPLES)
    add = parser.add_argument
    add("id", nargs="?", type=int, help="show this claim with all its evidence")
    what = parser.add_mutually_exclusive_group()
    text = "recompute the checks of the norms"
    what.add_argument("--compute", action="store_true", help=text)
    text = "verify that the committed pages follow from the records; 1 if one does not"
    what.add_argument("--verify", action="store_true", help=text)
    text = (
        f"write the ledger as Markdown and next to it, in plain words, {_SUMMARY}, and the checks "
        f"computed, {_COMPUTED}; default: {_PAGE} in the folder of --results"
    )
    what.add_argument(
        "--write", nargs="?", type=as_path, const=_IN_RESULTS, metavar="FILE", help=text
    )
    text = f"write the ledger for a browser, {_HTML} in the folder of --results"
    what.add_argument("--html", action="store_true", help=text)
    add("--json", action="store_true", help="print JSON")
    text = "records in addition to the committed ones; may be repeated"
    add("--runs-dir", action="append", default=[], type=as_path, metavar="DIR", help=text)
    text = "the committed records"
    add("--results", type=as_path, default=_RESULTS, metavar="DIR", help=text)
    arguments = parser.parse_args(argv)
    results: Path = arguments.results
    from normlab.claims.claim import load_all
    from normlab.claims.evidence import read_computed
    from normlab.claims.ledger import ledger, to_plain
    from normlab.claims.runs import Runs

    for name in ("write", "verify", "html"):
        if getattr(arguments, name) and (arguments.id is not None or arguments.runs_dir):
            raise ValueError(f"--{name} takes all claims and the committed records alone")
    if arguments.write and arguments.write.suffix != ".md":
        raise ValueError(f"--write {arguments.write}: name the Markdown page, ending in .md")
    for folder in (*arguments.runs_dir, *([results] if results != _RESULTS else [])):
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder")
    claims = load_all(CONFIG_DIR / "claim")
    if arguments.id is not None and arguments.id not in {claim.id for claim in claims}:
        raise ValueError(f"no claim {arguments.id}; there are 1 to {claims[-1].id}")
    if arguments.compute or arguments.write:
        from normlab.inspect.computed import compute

        computed = {name: compute(name) for name in _checks(claims)}
    else:
        computed = read_computed(results / _COMPUTED)
    places = [results, *arguments.runs_dir]
    runs = Runs.read(places, root=_CHECKOUT, configs=CONFIG_DIR, computed=computed)
    # Always of all claims, since those of one study are corrected together.
    entries = ledger(claims, runs)
    chosen = [entry for entry in entries if arguments.id in (None, entry.claim.id)]
    if arguments.write:
        page = results / _PAGE if arguments.write is _IN_RESULTS else arguments.write
        _write(entries, runs, page, results)
    elif arguments.html:
        from normlab.claims.pages import html
        from normlab.records.files import atomic_write

        with atomic_write(results / _HTML) as file:
            file.write(html(entries, text=_PAGE))
        print(f"wrote {results / _HTML}")
    elif arguments.verify:
        return _verify(entries, runs, results)
    elif arguments.json:
        print(json.dumps(to_plain(chosen), indent=1, sort_keys=True))
    elif arguments.id is None:
        _list(entries)
    else:
        _show(chosen[0])
    for message in runs.damaged:
        complain(message)
    return 1 if runs.damaged else 0


def _checks(claims: "Sequence[Claim]") -> list[str]:
    """Return the names of all checks that claims name."""
    from normlab.claims.endpoint import Computed

    parts = [part for claim in claims for part in claim.parts]
    endpoints = [each for part in parts for each in (part.endpoint, *part.secondary)]
    return sorted({endpoint.check for endpoint in endpoints if isinstance(endpoint, Computed)})


def _pages(entries: "Sequence[Entry]", runs: "Runs", path: Path) -> dict[Path, str]:
    """Render all that `--write` writes, by its path."""
    from normlab.claims import pages, summary
    from normlab.claims.evidence import to_json

    return {
        path: pages.markdown(entries),
        path.with_name(_SUMMARY): summary.page(entries),
        path.with_name(_COMPUTED): to_json(runs.computed),
    }


def _write(entries: "Sequence[Entry]", runs: "Runs", path: Path, results: Path) -> None:
    """Write all files, or none if one cannot be made or published evidence was altered."""
    from normlab.records.files import atomic_write
    from normlab.reports import manifest

    if (results / manifest.MANIFEST).is_file() and (wrong := manifest.problems(results)):
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(f"{wrong[0]}{more}: nothing is written; normlab study verify names all")
    for place, text in _pages(entries, runs, path).items():
        with atomic_write(place) as file:
            file.write(text)
        print(f"wrote {place}")
    if (path.parent / manifest.MANIFEST).is_file():
        manifest.accept(path.parent, [path.with_name(_COMPUTED)])


def _verify(entries: "Sequence[Entry]", runs: "Runs", results: Path) -> int:
    """Complain about pages that do not follow from the records, and records not as published."""
    from normlab.reports import manifest

    problems = [*runs.damaged, *manifest.problems(results)]
    again = "normlab claims --write" + ("" if results == _RESULTS else f" --results {results}")
    for place, text in _pages(entries, runs, results / _PAGE).items():
        if not place.is_file():
            problems.append(f"{place}: missing; {again} makes it")
        elif place.read_text("utf-8") != text:
            problems.append(
                f"{place}: does not follow from the records and {_COMPUTED}; look at what changed, "
                f"then {again}"
            )
    for problem in problems:
        complain(problem)
    if not problems:
        print(f"{len(entries)} claims: the pages follow from the records")
    return 1 if problems else 0


def _list(entries: "Sequence[Entry]") -> None:
    """Print each claim with its verdict, and below it its parts in one or two lines each."""
    from normlab.claims.judge import p_text
    from normlab.claims.pages import found_text, outcome_text, seeds_text

    for entry in entries:
        label = f"{entry.claim.id:2}  {entry.verdict:{_VERDICT}}"
        print_prose(f"{label}{entry.claim.statement}", hang=len(label))
        for outcome in entry.primary:
            said = [outcome_text(outcome)]
            if outcome.endpoint.kind not in ("computed", "published") or not outcome.grade:
                said.append(found_text(outcome))
                if (p := outcome.finding.p) is not None:
                    holm = "" if outcome.p_holm is None else p_text(outcome.p_holm)
                    holm = f" (corrected {holm})" if holm else ""
                    said.append(f"p {p_text(p)}{holm}, {seeds_text(outcome)}")
            text = "; ".join(filter(None, said))
            print_prose(f"- {outcome.name}: {text}", indent=" " * len(label), hang=2)
    counts = Counter(entry.verdict for entry in entries)
    print()
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    print("`normlab claims N` shows what decides a claim; A to D are grades of evidence.")
    count = len(_checks([entry.claim for entry in entries]))
    print(f"`normlab claims --compute` recomputes the {count} checks, which are shown here as")
    print(f"results/{_COMPUTED} keeps them; it adds no run.")


def _show(entry: "Entry") -> None:
    """Print a claim with the endpoint of each part, and the secondary ones below."""
    from normlab.claims.pages import part_text, verdict_text

    claim = entry.claim
    print_prose(f"Claim {claim.id} ({', '.join(claim.documents)}): {claim.statement}")
    facts = {
        "Verdict": verdict_text(entry),
        "Its value": claim.figure,
        "Literature": claim.literature.strip(),
        "See also": ", ".join(claim.see) or None,
    }
    for name, text in facts.items():
        if text is not None:
            print_prose(f"{name}: {text}", indent="  ")
    for each in entry.primary:
        print()
        print_prose(f"{each.name}: {part_text(each.part)}")
        _print_outcome(each, "  ")
    if entry.secondary:
        print("\nSecondary, never counted")
    for each in entry.secondary:
        print_prose(f"{each.name}:", indent="  ")
        _print_outcome(each, "    ")
    folders = [folder for each in entry.primary for folder in each.finding.records]
    if folders:
        print("\nRests on")
    for folder in dict.fromkeys(folders):
        print(f"  {folder}")


def _print_outcome(outcome: "Outcome", indent: str) -> None:
    """Print the question of an endpoint, its verdict and what was found."""
    from normlab.claims.judge import p_text
    from normlab.claims.pages import found_text, measure_text, outcome_text, seeds_text

    found = outcome.finding
    tests: list[str] = []
    if found.p is not None:
        tests = [f"{p_text(found.p)} as found"]
        if found.look is not None:
            tests.append(f"{p_text(found.p_look)} for the look at {found.look} seeds")
        if outcome.p_holm is not None:
            tests.append(f"{p_text(outcome.p_holm)} corrected for {outcome.compared} endpoints")
        tests[-1] += f" ({seeds_text(outcome)})"
    facts = {
        "question": outcome.question,
        "verdict": outcome_text(outcome),
        "found": found_text(outcome),
        "p": ", ".join(tests),
        "does not count": "; ".join(found.excluded),
        "to measure": measure_text(outcome).replace("`", ""),
    }
    for name, text in facts.items():
        if text:
            print_prose(f"{indent}{name:<16}{text}", hang=len(indent) + 16)
