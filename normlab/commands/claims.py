"""`normlab claims`: the claims of the documents, what was measured, and the verdicts."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._arguments import as_path, command_parser
from normlab.commands._terminal import complain, print_prose
from normlab.config.registry import CONFIG_DIR

if TYPE_CHECKING:
    from normlab.claims.ledger import Entry, Outcome

_EXAMPLES = """examples:
  normlab claims                  all claims and their verdicts
  normlab claims 7                one claim, its parts, endpoints, evidence
  normlab claims --compute        recompute the checks that take seconds
  normlab claims --verify         do the pages follow from the records?
  normlab claims --write          rewrite the ledger in results/

Without --compute, which needs torch and a few seconds, checks have the values that the last --write
saved in results/computed.json. --verify computes nothing and changes nothing.
"""
_RESULTS = CONFIG_DIR.parent / "results"
_COMPUTED = "computed.json"


def main(argv: list[str]) -> int:
    """Show, write or verify the ledger; return 1 if a record is damaged or a page is stale.

    Raises `ValueError` for an unknown claim or an invalid claim file.
    """
    does = "Show the ledger: each claim, its parts, the evidence and the verdict."
    parser = command_parser("claims", does, _EXAMPLES)
    add = parser.add_argument
    add("id", nargs="?", type=int, help="show this claim with all its evidence")
    what = parser.add_mutually_exclusive_group()
    for name, text in (
        ("compute", "recompute the checks of the norms"),
        ("verify", "verify that the committed pages follow from the records; exit status 1 if not"),
        ("write", "write the ledger, its plain-language summary, and the values of the checks"),
    ):
        what.add_argument(f"--{name}", action="store_true", help=text)
    add("--json", action="store_true", help="print JSON")
    add("--results", type=as_path, default=_RESULTS, metavar="DIR", help="folder of published runs")
    asked = parser.parse_args(argv)
    results: Path = asked.results
    if not results.is_dir():
        raise ValueError(f"{results}: no such folder")
    from normlab.claims.claim import load_all
    from normlab.claims.endpoint import Computed
    from normlab.claims.evidence import Runs, read_computed, to_json
    from normlab.claims.ledger import ledger, to_plain
    from normlab.claims.pages import markdown, summary

    claims = load_all(CONFIG_DIR / "claim")
    parts = [part for claim in claims for part in claim.parts]
    endpoints = [each for part in parts for each in (part.endpoint, *part.secondary)]
    checks = sorted({each.check for each in endpoints if isinstance(each, Computed)})
    if asked.compute or asked.write:
        from normlab.inspect.computed import compute

        computed = {name: compute(name) for name in checks}
    else:
        computed = read_computed(results / _COMPUTED)
    runs = Runs.read(results, CONFIG_DIR, computed)
    # Judge all claims, since the claims of one study are corrected together.
    entries = ledger(claims, runs)
    chosen = [entry for entry in entries if asked.id in (None, entry.claim.id)]
    if not chosen:
        raise ValueError(f"no claim {asked.id}; there are 1 to {claims[-1].id}")
    if asked.verify or asked.write:
        pages = {results / "claims.md": markdown(entries)}
        pages[results / "summary.md"] = summary(entries)
        pages[results / _COMPUTED] = to_json(computed)
        if asked.verify:
            return _verify(pages, runs.damaged, results)
        _write(pages, results)
    elif asked.json:
        print(json.dumps(to_plain(chosen), indent=1, sort_keys=True))
    elif asked.id is None:
        _list(entries)
        print(f"`normlab claims --compute` recomputes the {len(checks)} checks; the values")
        print(f"above are from results/{_COMPUTED}.")
    else:
        _show(chosen[0])
    for message in runs.damaged:
        complain(message)
    return 1 if runs.damaged else 0


def _write(pages: Mapping[Path, str], results: Path) -> None:
    """Write the pages, but none of them if published evidence was altered."""
    from normlab.reports import manifest

    published = (results / manifest.MANIFEST).is_file()
    if published and (wrong := [*manifest.problems(results).values()]):
        raise ValueError(f"{wrong[0]}: nothing is written; normlab study verify lists all problems")
    manifest.write_files(pages)
    print("\n".join(f"wrote {path}" for path in pages))
    if published:
        manifest.accept(results, [results / _COMPUTED])


def _verify(pages: Mapping[Path, str], damaged: Sequence[str], results: Path) -> int:
    """Report pages that do not follow from the records, and records that were altered."""
    from normlab.reports import manifest

    again = "normlab claims --write" + ("" if results == _RESULTS else f" --results {results}")
    problems = [*damaged, *manifest.problems(results).values()]
    for path in manifest.stale(pages):
        what = "does not follow from the records" if path.is_file() else "missing"
        problems.append(f"{path}: {what}; check what changed, then {again}")
    for problem in problems:
        complain(problem)
    if not problems:
        print("the pages follow from the records")
    return 1 if problems else 0


def _list(entries: "Sequence[Entry]") -> None:
    """Print each claim with its verdict, then its parts in one or two lines each."""
    from normlab.claims.pages import found_text, outcome_text, test_text

    for entry in entries:
        label = f"{entry.claim.id:2}  {entry.verdict:14}"
        print_prose(f"{label}{entry.claim.statement}", hang=len(label))
        for each in entry.primary:
            said = [outcome_text(each), found_text(each), test_text(each)]
            if each.grade and each.endpoint.kind in ("computed", "published"):
                said = said[:1]
            text = "; ".join(filter(None, said))
            print_prose(f"- {each.name}: {text}", indent=" " * len(label), hang=2)
    counts = Counter(entry.verdict for entry in entries)
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    print("`normlab claims N` shows a claim's evidence; A to D are grades of evidence.")


def _show(entry: "Entry") -> None:
    """Print a claim with the endpoint of each part, and the secondary endpoints below."""
    from normlab.claims.pages import part_text, verdict_text

    claim = entry.claim
    print_prose(f"Claim {claim.id} ({', '.join(claim.documents)}): {claim.statement}")
    facts = {"verdict": verdict_text(entry), "value": claim.figure, "see": ", ".join(claim.see)}
    _print_facts({**facts, "literature": claim.literature.strip()})
    for each in entry.primary:
        print()
        print_prose(f"{each.name}: {part_text(each.part)}")
        _print_outcome(each)
    if entry.secondary:
        print("\nSecondary endpoints, not counted in the verdict")
    for each in entry.secondary:
        print(f"{each.name}:")
        _print_outcome(each)
    records = [path for each in entry.primary for path in each.finding.records]
    if records:
        print("\nRecords")
    for experiment in dict.fromkeys(path.partition("@seed")[0] for path in records):
        print(f"  {experiment}")


def _print_outcome(outcome: "Outcome") -> None:
    """Print the question of an endpoint, its verdict and the finding."""
    from normlab.claims.pages import found_text, measure_text, outcome_text, test_text

    facts = {
        "question": outcome.question,
        "verdict": outcome_text(outcome),
        "found": found_text(outcome),
        "test": test_text(outcome),
        "excluded": "; ".join(outcome.finding.excluded),
        "to measure": measure_text(outcome).replace("`", ""),
    }
    _print_facts(facts)


def _print_facts(facts: Mapping[str, str | None]) -> None:
    for name, text in facts.items():
        if text:
            print_prose(f"  {name:<12}{text}", hang=14)
