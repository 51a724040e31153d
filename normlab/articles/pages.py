"""The pages about all articles: the interactive page, every sentence, and which norm when."""

import sys
import webbrowser
from pathlib import Path

from normlab.articles.article import load_all
from normlab.articles.results import Results
from normlab.config.folders import CONFIG_DIR, RESULTS

PLAY = CONFIG_DIR.parent / "docs" / "play" / "index.html"
"""The articles as an interactive page, in a checkout."""
SENTENCES = "sentences.md"
"""What was found on each sentence, in the folder of published runs."""
WHICH_NORM = "which_norm.md"
"""Which norm when, in the folder of published runs."""


def open_play_page(results: Path) -> None:
    """Print the page of all articles or, on a terminal, open it in a browser."""
    if sys.stdout.isatty() and results == RESULTS and PLAY.is_file():
        print(PLAY)
        webbrowser.open(PLAY.as_uri())
    else:
        print(play_page(results), end="")


def play_page(results: Path) -> str:
    """Return the page of all articles, sentence by sentence, with live pieces (docs/play)."""
    from normlab.articles.interactive_page import interactive_page
    from normlab.inspection.examples.page_examples import page_examples

    articles = load_all(CONFIG_DIR / "article").values()
    return interactive_page(articles, Results(results), page_examples())


def sentences_page(results: Path) -> str:
    """Return the findings on each sentence of all articles, and what is open, as Markdown."""
    from normlab.articles.sentences import sentences_text

    return sentences_text(load_all(CONFIG_DIR / "article").values(), Results(results))


def which_norm_page(results: Path) -> str:
    """Return the page "which norm when", as Markdown: advice from the current verdicts."""
    from normlab.articles.which_norm import load_situations, which_norm_text

    situations = load_situations(CONFIG_DIR / "which_norm.yaml")
    return which_norm_text(situations, Results(results))


def pages(results: Path) -> dict[Path, str]:
    """Return the pages that `normlab claims --write` writes after the ledger, by path.

    These are the two pages of all articles and the page that says which norm when.
    """
    return {
        PLAY: play_page(results),
        results / SENTENCES: sentences_page(results),
        results / WHICH_NORM: which_norm_page(results),
    }
