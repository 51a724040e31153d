"""The pages about all articles: the interactive page, and the list of every sentence."""

import sys
import webbrowser
from pathlib import Path

from normlab.articles.article import load_all
from normlab.articles.results import Results
from normlab.config.folders import CONFIG_DIR, RESULTS

PLAY = CONFIG_DIR.parent / "docs" / "play" / "index.html"
"""The interactive page of a checkout."""
SENTENCES = "sentences.md"
"""The page of what was found on each sentence, in the folder of published runs."""


def open_play_page(results: Path) -> None:
    """Open the interactive page in a browser.

    The page is printed instead if the output is not a terminal, or if the results are not in the
    checkout.
    """
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
    """Return the Markdown page of what was found on each sentence of all articles."""
    from normlab.articles.sentences import sentences_text

    return sentences_text(load_all(CONFIG_DIR / "article").values(), Results(results))


def pages(results: Path) -> dict[Path, str]:
    """Return the pages that `normlab claims --write` writes about articles, keyed by path."""
    return {PLAY: play_page(results), results / SENTENCES: sentences_page(results)}
