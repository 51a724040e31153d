"""`normlab documents`: the articles' tables, each cell above our findings on it."""

import argparse
import shutil
from collections.abc import Iterable, Sequence

from normlab.articles.article import Article, ArticleTable, load_all
from normlab.articles.language import LANGUAGES, Locale
from normlab.articles.layout import folded, latex, markdown, page, shown, text
from normlab.articles.pages import open_play_page, sentences_page
from normlab.articles.results import Results
from normlab.commands._arguments import as_path, command_parser
from normlab.config.folders import CONFIG_DIR, RESULTS
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


def main(argv: list[str]) -> int:
    """Print the tables of an article, or of all; with --run, execute the runs of one.

    Raises `UserError` for an unknown article or table, or if a cell's evidence does not exist.
    """
    arguments = _parser().parse_args(argv)
    articles = load_all(CONFIG_DIR / "article")
    if arguments.article is None:
        if arguments.form == "html" and not arguments.table and arguments.run is None:
            open_play_page(arguments.results)
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
    add("--results", type=as_path, default=RESULTS, metavar="DIR", help="folder of published runs")
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
