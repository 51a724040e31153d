"""`normlab documents`: the articles' tables, each cell above our findings on it."""

import argparse
import shutil
import sys
import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path

from normlab.commands._arguments import as_path, command_parser
from normlab.config.folders import CONFIG_DIR
from normlab.documents.article import Article, ArticleTable, load_all
from normlab.documents.evidence import Results
from normlab.documents.language import LANGUAGES, Locale
from normlab.documents.layout import folded, latex, markdown, page, shown, text
from normlab.errors import UserError

_EXAMPLES = """examples:
  normlab documents                          the articles and their tables
  normlab documents 1                        article 1's tables
  normlab documents 1 --table translation    one of them
  normlab documents 1 --table summary --zh --notes   in the article's Chinese
  normlab documents 1 --latex --notes        for a paper
  normlab documents --html                   every sentence, in a browser
  normlab documents --markdown               what is open or not tested, and why
  normlab documents 1 --table translation --run scale=smoke

Each cell has the article's words and, under them, what was measured: a mean
with its deviation over seeds, and verdicts. [2.1] is part 1 of claim 2.

--run prints the plan of one table with its hours, repeats its training runs,
and prints their results next to the article's values. It accepts settings of
`normlab study run`: scale= (default: smoke), seeds=, data_dir=FOLDER. The
command alone shows published runs (results/).
"""
_RESULTS = CONFIG_DIR.parent / "results"
PAGE = CONFIG_DIR.parent / "docs" / "play" / "index.html"
"""The articles as a page to play with, in a checkout."""
SENTENCES = "sentences.md"
"""What was found on each sentence, in the folder of published runs."""
WHICH_NORM = "which_norm.md"
"""Which norm when, in the folder of published runs."""


def main(argv: list[str]) -> int:
    """Print the tables of an article, or of all; with --run, execute the runs of one.

    Raises `UserError` for an unknown article or table, or if a cell's evidence does not exist.
    """
    arguments = _parser().parse_args(argv)
    articles = load_all(CONFIG_DIR / "document")
    if arguments.article is None:
        if arguments.form == "html" and not arguments.table and arguments.run is None:
            _play(arguments.results)
            return 0
        if arguments.form == "markdown" and not arguments.table and arguments.run is None:
            print(sentences_page(arguments.results), end="")
            return 0
        if arguments.table or arguments.run is not None or arguments.form:
            raise UserError(f"name an article, 1 to {max(articles)}: normlab documents 1")
        _list(articles.values(), LANGUAGES[arguments.language])
        return 0
    if arguments.article not in articles:
        known = f"articles are numbered 1 to {max(articles)}"
        raise UserError(f"no article {arguments.article}; {known}")
    article = articles[arguments.article]
    if arguments.run is not None:
        if arguments.table is None:
            tables = ", ".join(article.tables)
            raise UserError(f"--run: name the table with --table, one of {tables}")
        return _run(article.table(arguments.table), arguments.run)
    names = [arguments.table] if arguments.table else list(article.tables)
    for name in names:
        article.table(name)  # raises for an unknown table before anything is printed
    if not names:
        message = LANGUAGES[arguments.language].no_tables.format(id=article.id)
        if arguments.form:
            raise UserError(message)
        print("\n".join(folded(message, room())))
        return 0
    _show(article, names, arguments)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("documents", _EXAMPLES)
    add = parser.add_argument
    add("article", nargs="?", type=int, metavar="N", help="the number of an article")
    add("--table", metavar="ID", help="only this table")
    language = parser.add_mutually_exclusive_group()
    language.add_argument("--zh", dest="language", action="store_const", const="zh", help="Chinese")
    text = "English (default)"
    language.add_argument("--en", dest="language", action="store_const", const="en", help=text)
    form = parser.add_mutually_exclusive_group()
    for name, title in (("latex", "LaTeX (booktabs)"), ("markdown", "Markdown"), ("html", "HTML")):
        text = f"print {title}"
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=text)
    add(
        "--notes", action="store_true", help="what each verdict is about, and the numbers behind it"
    )
    text = "repeat the table's training runs, as normlab study run does"
    add("--run", nargs="*", metavar="key=value", help=text)
    add("--results", type=as_path, default=_RESULTS, metavar="DIR", help="folder of published runs")
    parser.set_defaults(language="en")
    return parser


def _list(articles: Iterable[Article], language: Locale) -> None:
    """Print the articles with the name, section and title of each of their tables."""
    for article in articles:
        print("\n".join(folded(f"{article.id}  {article.title.text(language)}", room(), hang=3)))
        for name, table in article.tables.items():
            row = f"{name:<12} {table.section:<4} {table.title.text(language)}"
            print("\n".join(f"   {line}" for line in folded(row, room() - 3, hang=18)))
    print("\n".join(["", *folded(language.play, room())]))


def _play(results: Path) -> None:
    """Print the page of all articles; on a terminal open it in a browser instead."""
    if sys.stdout.isatty() and results == _RESULTS and PAGE.is_file():
        print(PAGE)
        webbrowser.open(PAGE.as_uri())
    else:
        print(play_page(results), end="")


def play_page(results: Path) -> str:
    """Return the page of all articles, sentence by sentence, with live pieces (docs/play)."""
    from normlab.claims.claim import load_all as load_claims
    from normlab.documents.play import page as page_to_play
    from normlab.inspection.pieces import pieces

    articles = load_all(CONFIG_DIR / "document").values()
    return page_to_play(articles, Results(results), load_claims(CONFIG_DIR / "claim"), pieces())


def sentences_page(results: Path) -> str:
    """Return the findings on each sentence of all articles, and what is open, as Markdown."""
    from normlab.documents.coverage import page as page_of_sentences

    return page_of_sentences(load_all(CONFIG_DIR / "document").values(), Results(results))


def advice(results: Path) -> str:
    """Return the page "which norm when", as Markdown: advice from the current verdicts."""
    from normlab.documents.which_norm import load_situations
    from normlab.documents.which_norm import page as page_of_advice

    return page_of_advice(load_situations(CONFIG_DIR / "which_norm.yaml"), Results(results))


def pages(results: Path) -> dict[Path, str]:
    """Return what `normlab claims --write` writes after the ledger, by path.

    These are the two pages of all articles and the page that says which norm when.
    """
    return {
        PAGE: play_page(results),
        results / SENTENCES: sentences_page(results),
        results / WHICH_NORM: advice(results),
    }


def _show(article: Article, names: Sequence[str], arguments: argparse.Namespace) -> None:
    """Print tables in the requested format."""
    results, language = Results(arguments.results), LANGUAGES[arguments.language]
    tables = [shown(article, name, results, language, notes=arguments.notes) for name in names]
    if arguments.form == "html":
        print(page(tables), end="")
    elif arguments.form:
        print(
            "\n".join(map({"latex": latex, "markdown": markdown}[arguments.form], tables)), end=""
        )
    else:
        print("\n".join(text(table, room()) for table in tables), end="")
        if not arguments.notes:
            print("\n".join(["", *folded(language.legend, room())]))


def _run(table: ArticleTable, words: Sequence[str]) -> int:
    """Show the cost of a table's runs, execute them, and print their tables."""
    from normlab.commands import study

    jobs = [[*each, *words] for each in table.runs]
    for job in jobs:
        study.main(["plan", *job])
    return max(study.main(["run", *job]) for job in jobs)


def room() -> int:
    """Return the columns of the terminal (in a pipe, COLUMNS or 80)."""
    return shutil.get_terminal_size().columns
