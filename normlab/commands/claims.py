"""`normlab claims`: the claims of the articles, their answers, and the evidence."""

import re
import shutil
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.claims.ledger_file import SavedClaim, read_ledger
from normlab.commands._arguments import as_path, command_parser
from normlab.config.folders import CONFIG_DIR, RESULTS
from normlab.config.suggestions import did_you_mean
from normlab.errors import UserError
from normlab.terminal import at_work, print_error, print_prose, wrapped

if TYPE_CHECKING:
    from normlab.claims.judged_results import JudgedResults

_EXAMPLES = """examples:
  normlab claims                  all claims, with their answers
  normlab claims 7                one claim: its answer, its parts, the evidence
  normlab claims "article 1"      the claims of an article
  normlab claims padding          the claims that mention it, one line each
  normlab claims 7 --zh           in Chinese; also for lists
  normlab claims 7 --compute      the same, judged again from the records
  normlab claims --verify         do the pages match the records?
  normlab claims --write          rewrite the ledger in results/

Without --compute, verdicts are read from results/claims.json, as the last
--write saved them. --compute also recomputes the checks of the norms, in up to
a minute; --verify uses their saved values (results/computed.json).
"""
_GRADES = {
    "en": "grades of evidence: A, the article's own experiment; B, trained to the end on two data "
    "sets; C, a smaller experiment, or timings of a model; D, a computation, timings of a norm "
    "alone, or a published source",
    "zh": "证据等级：A 为文章自己的实验；B 为在两个数据集上训练到收敛的实验；C 为规模较小的实验，"
    "或对整个模型的计时；D 为计算、对归一化本身的计时，或已发表的资料",
}
_AGAIN = {"en": "judged again from the records in {}", "zh": "已根据 {} 中的记录重新判定"}


def main(argv: list[str]) -> int:
    """Show, write or verify the ledger. Return 1 if a record is damaged or a page is stale.

    Raises `UserError` for an unknown claim, an invalid claim file, or a missing ledger.
    """
    arguments = _parser().parse_args(argv)
    number, article, words = _which(" ".join(arguments.which))
    results: Path = arguments.results
    if not results.is_dir():
        raise UserError(f"{results} is not a folder")
    flag = "" if results == RESULTS else f" --results {results}"
    write_command = f"normlab claims --write{flag}"
    damaged: Sequence[str] = ()
    if arguments.compute or arguments.verify or arguments.write:
        with at_work("judging the records of all claims"):
            judged = _judged(results, compute=not arguments.verify)
        claims, pages, damaged = judged.claims, judged.pages, judged.damaged
        if arguments.verify:
            return _verify(pages, damaged, results, write_command)
        if arguments.write:
            _write(pages, results)
    else:
        claims = [*read_ledger(results, write_command).values()]
    chosen = [
        claim
        for claim in claims
        if number in (None, claim.id)
        and (article is None or article in claim.articles)
        and (not words or claim.statements_with(words))
    ]
    if not chosen:
        raise UserError(_no_claim(number, article, words, claims))
    if arguments.json:
        from normlab.claims.saved import ledger_json

        print(ledger_json(chosen), end="")
    elif number is not None or not arguments.write:
        _show(chosen, arguments.language, words, single=number is not None)
        if arguments.compute:
            print_prose(_AGAIN[arguments.language].format(results))
    for message in damaged:
        print_error(message)
    return 1 if damaged else 0


def _parser() -> ArgumentParser:
    parser = command_parser("claims", _EXAMPLES)
    add = parser.add_argument
    text = "a claim to show with its evidence, or an article or a word whose claims to list"
    add("which", nargs="*", metavar="N | article N | WORD", help=text)
    what = parser.add_mutually_exclusive_group()
    for name, text in (
        ("compute", "judge again, from the records and the checks of the norms"),
        ("verify", "verify that the committed pages match the records; exit status 1 if not"),
        ("write", "write the ledger, its summary, docs/play, and the values of the checks"),
    ):
        what.add_argument(f"--{name}", action="store_true", help=text)
    add("--zh", dest="language", action="store_const", const="zh", default="en", help="in Chinese")
    add("--json", action="store_true", help="print JSON (both languages)")
    text = "folder of published runs; default: results"
    add("--results", type=as_path, default=RESULTS, metavar="FOLDER", help=text)
    return parser


def _which(text: str) -> tuple[int | None, str | None, str]:
    """Parse the number of a claim, the name of an article (`article 1`), or words to search for."""
    if text.isdecimal():
        return int(text), None, ""
    if re.fullmatch(r"article \d+", text):
        return None, text, ""
    return None, None, text


def _no_claim(
    number: int | None, article: str | None, words: str, claims: Sequence[SavedClaim]
) -> str:
    """Return the error for a number, an article or words that match no claim."""
    if not words:
        known = f"claims are numbered 1 to {claims[-1].id}, articles 1 to 5"
        return f"claim {article or number} does not exist; {known}"
    statements = (each.statement for claim in claims for each in (claim, *claim.parts))
    known = sorted({word.lower() for text in statements for word in re.findall(r"\w{3,}", text)})
    near = did_you_mean(words, known)
    return f"no claim mentions {words!r:.60}.{near} `normlab claims` lists all"


def _judged(results: Path, *, compute: bool) -> "JudgedResults":
    from normlab.claims.judged_results import judge_results

    if not compute:
        return judge_results(results, CONFIG_DIR)
    from normlab.claim_checks import compute as run_check

    return judge_results(results, CONFIG_DIR, run_check)


def _write(pages: Mapping[Path, str], results: Path) -> None:
    """Write the pages of the ledger, then the pages that are made from it.

    If published evidence was altered, write nothing.
    """
    from normlab.claims.evidence import COMPUTED
    from normlab.records import manifest

    published = (results / manifest.MANIFEST).is_file()
    if published and (wrong := [*manifest.problems(results).values()]):
        raise UserError(
            f"{wrong[0]}; nothing was written, and normlab study verify lists all problems"
        )
    manifest.write_files(pages)
    others = _pages_from_ledger(results)
    manifest.write_files(others)
    print("\n".join(f"wrote {path}" for path in (*pages, *others)))
    if published:
        manifest.accept(results, [results / COMPUTED])


def _pages_from_ledger(results: Path) -> dict[Path, str]:
    """Return the pages made from the ledger in a folder, keyed by path. Only a checkout has any."""
    from normlab.advice.which_norm import WHICH_NORM, which_norm_page
    from normlab.articles.pages import PLAY
    from normlab.articles.pages import pages as pages_of_articles

    if results != RESULTS or not PLAY.is_file():
        return {}
    return {**pages_of_articles(results), results / WHICH_NORM: which_norm_page(results)}


def _verify(
    pages: Mapping[Path, str], damaged: Sequence[str], results: Path, write_command: str
) -> int:
    """Report any page that does not match the records, and any record that has been altered.

    Pages made from the ledger are compared only if the ledger itself matches.
    """
    from normlab.records import manifest

    problems = [*damaged, *manifest.problems(results).values()]
    outdated = manifest.stale(pages)
    for path in outdated or manifest.stale(_pages_from_ledger(results)):
        what = "does not match the records" if path.is_file() else "missing"
        problems.append(f"{path}: {what}; find out what changed, then run {write_command}")
    for problem in problems:
        print_error(problem)
    if not problems:
        print("the pages match the records")
    return 1 if problems else 0


def _show(claims: Sequence[SavedClaim], language_name: str, words: str, *, single: bool) -> None:
    """Print one claim with all its evidence, a list with answers, or a list of matches."""
    from normlab.claims.in_words.claim_lines import claim_lines, list_lines, mention_lines
    from normlab.claims.in_words.language import LANGUAGES  # reads its texts

    language = LANGUAGES[language_name]
    width = shutil.get_terminal_size().columns
    if single:
        lines = claim_lines(claims[0], language, width)
        if any(part.grades for part in (*claims[0].parts, *claims[0].secondary)):
            lines += ["", *wrapped(_GRADES[language_name], width)]
    elif words:
        lines = mention_lines(claims, words, language, width)
    else:
        lines = list_lines(claims, language, width)
    print("\n".join(lines))
