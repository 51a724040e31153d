"""`normlab articles`: the articles' tables, with our findings below the words of each cell."""

import argparse
import shlex
import shutil
from collections.abc import Mapping, Sequence

from normlab.articles.article import Article, ArticleTable, load_all
from normlab.articles.pages import open_play_page, sentences_page
from normlab.articles.results import Results
from normlab.articles.table import html_of, latex_of, markdown_of, shown_table
from normlab.articles.table_text import text_of
from normlab.claims.in_words.language import LANGUAGES
from normlab.commands._arguments import as_path, as_text, command_parser
from normlab.config.folders import CONFIG_DIR, RESULTS, include_words
from normlab.errors import UserError
from normlab.terminal import print_prose

_EXAMPLES = """examples:
  normlab articles                          the articles and their tables
  normlab articles 1                        article 1's tables
  normlab articles 1 --table translation    one of them
  normlab articles 1 --table summary --zh --notes   in the article's Chinese
  normlab articles 1 --latex --notes        for a paper
  normlab articles --html                   every sentence, in a browser
  normlab articles --markdown               what is open or not tested, and why
  normlab articles 1 --table translation --run scale=smoke

Each cell has the article's words and, under them, what was measured: a mean
with its standard deviation over seeds, and verdicts. [2.1] is part 1 of
claim 2.

--run prints the plan of one table with its hours, repeats its training runs,
and prints their results next to the article's values. It accepts settings of
`normlab study run`: scale= (default: smoke), seeds=, data_dir=FOLDER.
Without --run, published runs (results/) are shown.
"""


def main(argv: list[str]) -> int:
    """List the articles, or print the tables of one. With --run, execute the runs of a table.

    Raises `UserError` for an unknown article or table, or if a cell's evidence does not exist.
    """
    arguments = _parser().parse_args(argv)
    articles = load_all(CONFIG_DIR / "article")
    if arguments.article is None:
        _show_all(articles, arguments)
        return 0
    if arguments.article not in articles:
        known = f"articles are numbered 1 to {max(articles)}"
        raise UserError(f"article {arguments.article} does not exist; {known}")
    article = articles[arguments.article]
    if arguments.run is not None:
        if arguments.table is None:
            tables = ", ".join(article.tables)
            raise UserError(f"--run needs --table with one of {tables}")
        resume_command = shlex.join(["normlab", "articles", *argv, *include_words()])
        return _run(article.table(arguments.table), arguments.run, resume_command)
    _show_tables(article, arguments)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("articles", _EXAMPLES)
    add = parser.add_argument
    add("article", nargs="?", type=int, metavar="N", help="the number of an article")
    add("--table", type=as_text, metavar="ID", help="only this table")
    language = parser.add_mutually_exclusive_group()
    for name, text in (("zh", "in Chinese"), ("en", "in English (default)")):
        language.add_argument(
            f"--{name}", dest="language", action="store_const", const=name, help=text
        )
    form = parser.add_mutually_exclusive_group()
    for name, title in (("latex", "LaTeX (booktabs)"), ("markdown", "Markdown"), ("html", "HTML")):
        text = f"print {title}"
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=text)
    text = "add what each verdict is about, and the numbers behind it"
    add("--notes", action="store_true", help=text)
    text = "repeat the table's training runs, as normlab study run does"
    add("--run", nargs="*", metavar="key=value", help=text)
    text = "folder of published runs; default: results"
    add("--results", type=as_path, default=RESULTS, metavar="FOLDER", help=text)
    parser.set_defaults(language="en")
    return parser


def _show_all(articles: Mapping[int, Article], arguments: argparse.Namespace) -> None:
    """List all articles with the name, section and title of each table, or show their page."""
    one_table = arguments.table is not None or arguments.run is not None
    if arguments.form == "html" and not one_table:
        open_play_page(arguments.results)
        return
    if arguments.form == "markdown" and not one_table:
        print(sentences_page(arguments.results), end="")
        return
    if one_table or arguments.form:
        raise UserError(f"pass the number of an article, 1 to {max(articles)}: normlab articles 1")
    language = LANGUAGES[arguments.language]
    for article in articles.values():
        print_prose(f"{article.id}  {article.title.text(language)}", hang=3)
        for name, table in article.tables.items():
            row = f"{name:<12} {table.section:<4} {table.title.text(language)}"
            print_prose(row, indent="   ", hang=18)
    print()
    print_prose(language.table.play)


def _show_tables(article: Article, arguments: argparse.Namespace) -> None:
    """Print the tables of an article, or one of them, in the requested format."""
    results, language = Results(arguments.results), LANGUAGES[arguments.language]
    names = [arguments.table] if arguments.table else list(article.tables)
    if not names:
        message = language.table.no_tables.format(id=article.id)
        if arguments.form:
            raise UserError(message)
        print_prose(message)
        return
    language = language.typeset if arguments.form in ("html", "latex") else language
    tables = [
        shown_table(article, name, results, language, notes=arguments.notes) for name in names
    ]
    if arguments.form == "html":
        print(html_of(tables), end="")
    elif arguments.form == "latex":
        print("\n".join(map(latex_of, tables)), end="")
    elif arguments.form == "markdown":
        print("\n".join(map(markdown_of, tables)), end="")
    else:
        width = shutil.get_terminal_size().columns
        print("\n".join(text_of(table, width) for table in tables), end="")
        if not arguments.notes:
            print()
            print_prose(language.table.legend)


def _run(table: ArticleTable, words: Sequence[str], resume_command: str) -> int:
    """Show the cost of a table's runs, execute them, and print their tables."""
    from normlab.commands._study_runs import print_plan, publisher_to, run_studies
    from normlab.studies.job import jobs_of

    jobs = [job for each in table.study_runs for job in jobs_of([*each, *words])]
    print_plan(jobs)
    return run_studies(jobs, publisher_to(None, jobs, making=True), resume_command)
