"""`normlab claims`: the claims of the articles, their answers, and the evidence."""

import json
import re
import shutil
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.commands._arguments import as_path, command_parser
from normlab.config.folders import CONFIG_DIR, RESULTS
from normlab.errors import UserError
from normlab.terminal import at_work, print_error, print_prose

_EXAMPLES = """examples:
  normlab claims                  all claims, with their answers
  normlab claims 7                one claim: its answer, its parts, the evidence
  normlab claims "article 1"      the claims of an article
  normlab claims 7 --zh           in Chinese; also for lists
  normlab claims 7 --compute      the same, judged again from the records
  normlab claims --verify         do the pages match the records?
  normlab claims --write          rewrite the ledger in results/

Without --compute, verdicts are read from results/claims.json, as the last
--write saved them. --compute also recomputes the checks of the norms, in a few
seconds; --verify uses their saved values (results/computed.json).
"""
_COMPUTED = "computed.json"
_SAVED = "claims.json"


def main(argv: list[str]) -> int:
    """Show, write or verify the ledger; return 1 if a record is damaged or a page is stale.

    Raises `UserError` for an unknown claim, an invalid claim file, or a missing ledger.
    """
    arguments = _parser().parse_args(argv)
    number, article = _which(" ".join(arguments.which))
    results: Path = arguments.results
    if not results.is_dir():
        raise UserError(f"{results}: no such folder")
    again = "normlab claims --write" + ("" if results == RESULTS else f" --results {results}")
    damaged: list[str] = []
    if arguments.compute or arguments.verify or arguments.write:
        with at_work("judging the records of all claims"):
            pages, damaged = _judged(results, compute=not arguments.verify)
        if arguments.verify:
            return _verify(pages, damaged, results, again)
        if arguments.write:
            _write(pages, results)
        claims = json.loads(pages[results / _SAVED])
    else:
        claims = _read(results / _SAVED, again)
    chosen = [
        claim
        for claim in claims
        if number in (None, claim["id"]) and (article is None or article in claim["articles"])
    ]
    if not chosen:
        known = f"claims are numbered 1 to {claims[-1]['id']}, articles 1 to 5"
        raise UserError(f"no claim {' '.join(arguments.which)}; {known}")
    if arguments.chinese and not (arguments.json or arguments.write):
        _show_in_chinese(chosen, results, single=number is not None)
    elif arguments.json:
        print(json.dumps(chosen, ensure_ascii=False, indent=1))
    elif number is not None:
        _show(chosen[0])
    elif not arguments.write:
        _list(chosen)
    for message in damaged:
        print_error(message)
    return 1 if damaged else 0


def _parser() -> ArgumentParser:
    parser = command_parser("claims", _EXAMPLES)
    add = parser.add_argument
    text = "show this claim with all its evidence, or list the claims of an article"
    add("which", nargs="*", metavar="N | article N", help=text)
    what = parser.add_mutually_exclusive_group()
    for name, text in (
        ("compute", "judge again, from the records and the checks of the norms"),
        ("verify", "verify that the committed pages match the records; exit status 1 if not"),
        ("write", "write the ledger, its summary, docs/play, and the values of the checks"),
    ):
        what.add_argument(f"--{name}", action="store_true", help=text)
    add("--zh", dest="chinese", action="store_true", help="in Chinese")
    add("--json", action="store_true", help="print JSON (both languages)")
    add("--results", type=as_path, default=RESULTS, metavar="DIR", help="folder of published runs")
    return parser


def _which(text: str) -> tuple[int | None, str | None]:
    """Return the number of a claim, or the name of an article, such as `article 1`."""
    if not text:
        return None, None
    if text.isdecimal():
        return int(text), None
    if not re.fullmatch(r"article \d+", text):
        raise UserError(f'no claim {text}: expected a number, such as 7, or "article 1"')
    return None, text


def _read(path: Path, again: str) -> list[dict[str, Any]]:
    """Return the saved ledger; UserError if there is none."""
    try:
        claims = json.loads(path.read_text("utf-8"))
        return sorted(claims, key=lambda claim: claim["id"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = "missing" if isinstance(error, FileNotFoundError) else f"damaged ({error})"
        raise UserError(f"{path}: {why}; {again} writes it from the records") from None


def _judged(results: Path, *, compute: bool) -> tuple[dict[Path, str], list[str]]:
    """Judge all claims; return the text of each page, and a message for each damaged record."""
    from normlab.claims.claim import load_all
    from normlab.claims.evidence import EvidenceStore, read_computed, to_json
    from normlab.claims.ledger import ledger
    from normlab.claims.other_endpoints import Computed
    from normlab.claims.pages import markdown, summary
    from normlab.claims.saved import saved

    claims = load_all(CONFIG_DIR / "claim")
    computed = read_computed(results / _COMPUTED)
    if compute:
        from normlab.inspection.checks import compute as computed_now

        parts = [part for claim in claims for part in claim.parts]
        endpoints = [each for part in parts for each in (part.endpoint, *part.secondary)]
        checks = sorted({each.check for each in endpoints if isinstance(each, Computed)})
        computed = {name: computed_now(name) for name in checks}
    runs = EvidenceStore.read(results, CONFIG_DIR, computed)
    entries = ledger(claims, runs)
    pages = {results / "claims.md": markdown(entries), results / "summary.md": summary(entries)}
    pages |= {results / _SAVED: saved(entries), results / _COMPUTED: to_json(computed)}
    return pages, runs.damaged


def _write(pages: Mapping[Path, str], results: Path) -> None:
    """Write the pages, then the articles' pages; none if published evidence was altered."""
    from normlab.articles.pages import PLAY
    from normlab.articles.pages import pages as pages_of_articles
    from normlab.records import manifest

    published = (results / manifest.MANIFEST).is_file()
    if published and (wrong := [*manifest.problems(results).values()]):
        raise UserError(
            f"{wrong[0]}: nothing was written; run normlab study verify to list all problems"
        )
    manifest.write_files(pages)
    if results == RESULTS and PLAY.is_file():
        others = pages_of_articles(results)
        manifest.write_files(others)
        pages = {**pages, **others}
    print("\n".join(f"wrote {path}" for path in pages))
    if published:
        manifest.accept(results, [results / _COMPUTED])


def _verify(pages: Mapping[Path, str], damaged: Sequence[str], results: Path, again: str) -> int:
    """Report any page that does not match the records, and any record that has been altered."""
    from normlab.records import manifest

    problems = [*damaged, *manifest.problems(results).values()]
    for path in manifest.stale(pages):
        what = "does not match the records" if path.is_file() else "missing"
        problems.append(f"{path}: {what}; check what changed, then {again}")
    for problem in problems:
        print_error(problem)
    if not problems:
        print("the pages match the records")
    return 1 if problems else 0


def _list(claims: Sequence[Mapping[str, Any]]) -> None:
    """Print each claim with its verdict, and its answer below it."""
    for claim in claims:
        print_prose(f"{claim['id']:2}  [{claim['verdict']}] {claim['statement']}", hang=4)
        print_prose(f"- {claim['answer']}", indent="    ", hang=2)
    counts = Counter(claim["verdict"] for claim in claims)
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    print("`normlab claims N` shows the parts of a claim and the evidence.")


def _show(claim: Mapping[str, Any]) -> None:
    """Print a claim and its answer, then its parts, and the secondary endpoints below."""
    print_prose(f"Claim {claim['id']}: {claim['statement']}")
    facts = {"answer": claim["answer"], "verdict": claim["said"]}
    facts |= {"from": ", ".join(claim["articles"]) + " (docs/explanation/verdicts.md)"}
    facts |= {"value": claim["figure"], "see": ", ".join(claim["see"])}
    _print_facts({**facts, "literature": claim["literature"]})
    for part in claim["parts"]:
        print()
        print_prose(f"{part['part']}. {part['statement']}", hang=3)
        _print_outcome(part)
    if claim["secondary"]:
        print("\nSecondary endpoints, not counted in the verdict")
    for each in claim["secondary"]:
        print(f"for part {each['part']}:")
        _print_outcome(each)
    records = [name for part in claim["parts"] for name in part["records"]]
    if records:
        print("\nRecords")
    for name in dict.fromkeys(records):
        print(f"  {name}")


def _show_in_chinese(claims: Sequence[Mapping[str, Any]], folder: Path, *, single: bool) -> None:
    """Print one claim, or the list of claims, in Chinese."""
    from normlab.articles.claims_in_chinese import claim_lines, list_of_claims
    from normlab.articles.results import Results

    width = shutil.get_terminal_size().columns
    if not single:
        print("\n".join(list_of_claims(claims, width)))
        return
    results = Results(folder)
    results.claims = {claim["id"]: claim for claim in claims}
    print("\n".join(claim_lines(claims[0], results, width)))


def _print_outcome(outcome: Mapping[str, Any]) -> None:
    """Print the verdict of an endpoint, the question that it asks, and the finding."""
    facts = {"verdict": outcome["said"]}
    for name in ("question", "found", "test", "excluded"):
        facts[name] = outcome[name]
    command, cost = outcome["to_measure"], outcome["cost"]
    _print_facts({**facts, "to measure": f"{command} ({cost})" if command else ""})


def _print_facts(facts: Mapping[str, str | None]) -> None:
    for name, text in facts.items():
        if text:
            print_prose(f"  {name:<12}{text}", hang=14)
