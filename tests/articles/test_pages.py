"""The pages of the articles are up to date and are written with the ledger."""

import sys
import webbrowser

from normlab.advice import which_norm
from normlab.articles import pages
from normlab.articles.article import load_all
from normlab.articles.pages import PLAY, play_page
from normlab.cli import main
from normlab.commands import claims
from normlab.config.folders import CONFIG_DIR
from normlab.records.manifest import accept
from tests.articles.conftest import ROOT
from tests.docs.pages import PAGES

TYPED = {
    passage.command
    for article in load_all(CONFIG_DIR / "article").values()
    for section in article.sections
    for passage in section.body
    if passage.command
}


def test_the_committed_interactive_page_is_up_to_date_and_below_250_kb():
    assert PLAY.read_text("utf-8") == play_page(ROOT / "results"), "run: python scripts/blocks.py"
    assert PLAY.stat().st_size < 250_000


def test_commands_to_try_run_or_are_in_a_tested_page(capsys):
    pages = "".join(path.read_text("utf-8") for path in PAGES)
    for command in sorted(TYPED):
        program, verb, *words = command.split()
        assert program == "normlab"
        assert command in pages or (verb == "explain" and main([verb, *words]) == 0), command
    capsys.readouterr()


def test_articles_html_opens_the_page_on_a_terminal_and_prints_it_in_a_pipe(capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["articles", "--html"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>") and not opened
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["articles", "--html"]) == 0
    assert opened == [PLAY.as_uri()] and capsys.readouterr().out == f"{PLAY}\n"
    assert main(["articles"]) == 0 and "normlab articles --html" in capsys.readouterr().out


def test_the_pages_made_from_the_ledger_are_written_and_verified_with_it(
    tmp_path, monkeypatch, capsys
):
    ledger, page = tmp_path / "claims.json", tmp_path / "index.html"
    page.write_text("old")
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "PLAY", page)
    makers = ((pages, "play_page"), (pages, "sentences_page"), (which_norm, "which_norm_page"))
    for module, made in makers:
        monkeypatch.setattr(module, made, lambda results: (results / "claims.json").read_text())
    claims._write({ledger: "new"}, tmp_path)
    written = capsys.readouterr().out
    for path in (page, tmp_path / "sentences.md", tmp_path / "which_norm.md"):
        assert path.read_text() == "new" and f"wrote {path}" in written
        path.write_text("old")
        assert claims._verify({ledger: "new"}, (), tmp_path, "normlab claims --write") == 1
        assert capsys.readouterr().err.count(f"{path}: does not match the records") == 1
        path.write_text("new")
    accept(tmp_path, [tmp_path])
    assert claims._verify({ledger: "new"}, (), tmp_path, "normlab claims --write") == 0
