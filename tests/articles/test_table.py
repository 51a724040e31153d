"""The tables of the articles in each format: every cell links to evidence and shows its result."""

import json
import re

import pytest
from rich.cells import cell_len

from normlab.articles.article import load_all
from normlab.articles.results import Results
from normlab.articles.table import html_of, latex_of, markdown_of, shown_table
from normlab.articles.table_text import text_of
from normlab.claims.in_words.language import CHINESE, ENGLISH, LANGUAGES
from normlab.config.folders import CONFIG_DIR, RESULTS
from tests.articles.one_cell import article

ARTICLES = load_all(CONFIG_DIR / "article")
TABLES = [(each, name) for each in ARTICLES.values() for name in each.tables]


@pytest.fixture(scope="module")
def results():
    return Results(RESULTS)


def texts_of(table):
    """Return the findings of all cells."""
    return [each.line for row in table.rows for measured in row.measured for each in measured]


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_cell_has_existing_evidence_and_tables_fit_80_columns(results, code):
    for each, name in TABLES:
        table = shown_table(each, name, results, LANGUAGES[code])
        assert all(all(cells) for row in table.rows for cells in row.measured), (each.id, name)
        lines = text_of(table, 80).splitlines()
        assert max(map(cell_len, lines)) <= 80, (each.id, name)


def test_both_languages_show_the_same_numbers_and_chinese_has_no_english_words(results):
    for each, name in TABLES:
        english, chinese = (shown_table(each, name, results, x) for x in (ENGLISH, CHINESE))
        spreads = [
            [re.findall(r"([\d.]+) (?:\+-|\u00b1) ([\d.]+)", found) for found in texts_of(table)]
            for table in (english, chinese)
        ]
        assert spreads[0] == spreads[1]
        assert "原文" in text_of(chinese, 80) and "measured" in text_of(english, 80)
        left = r"\b(?:updates|seeds|of|its|training|pictures)\b"
        assert not re.findall(left, " ".join(texts_of(chinese))), (each.id, name)


def test_verdicts_in_cells_match_the_ledger(results):
    ledger = json.loads((RESULTS / "claims.json").read_text())
    parts = {f"{claim['id']}.{p['part']}": p["verdict"] for claim in ledger for p in claim["parts"]}
    tables = [shown_table(each, name, results, ENGLISH, notes=False) for each, name in TABLES]
    verdicts = [
        match.groups()
        for table in tables
        for found in texts_of(table)
        if (match := re.fullmatch(r"(?:.*: )?(.*) \[(\d+\.\d+)\]", found))
    ]
    assert len(verdicts) > 80
    assert all(ENGLISH.verdicts[parts[place]] == verdict for verdict, place in verdicts)


def test_each_format_escapes_the_text_of_the_articles(tmp_path, results):
    table = shown_table(article(tmp_path, "[{remark: {zh: '5 % _ <i>'}}]"), "one", results, CHINESE)
    made = latex_of(table)
    assert r"\caption{50 \% \& $<$b$>$" in made and r"方法\_ & BLEU \\" in made
    assert r"LN & $<$35 \%$>$ \\" in made and r"\textit{5 \% \_ $<$i$>$}" in made
    assert "&lt;35 %&gt;<small>5 % _ &lt;i&gt;</small>" in html_of([table])
    assert "<b>" not in html_of([table]) and "<i>" not in markdown_of(table)
    assert "**5 % _ &lt;i>**" in markdown_of(table)


def test_html_cells_have_the_name_of_their_column(results):
    table = shown_table(ARTICLES[1], "translation", results, ENGLISH.typeset)
    assert html_of([table]).count('<td data-column="BLEU">') == len(table.rows) == 3
    assert "+-" not in html_of([table])


def test_latex_has_no_emoji_and_a_line_for_each_half_of_a_row(results):
    made = latex_of(shown_table(ARTICLES[1], "summary", results, ENGLISH))
    assert not re.search("[\u2600-\u27bf]", made) and r"$\surd$ suits varying lengths" in made
    heads = made.count(r"aspect & ")
    assert made.count(r" \\") == heads + 2 * len(ARTICLES[1].tables["summary"].rows)


def test_only_a_latex_table_taller_than_a_page_breaks_between_pages(results):
    tall, short = (
        latex_of(shown_table(ARTICLES[2], name, results, CHINESE)) for name in ("points", "order")
    )
    assert r"\begin{longtable}" in tall and r"\begin{table}" not in tall
    assert r"\begin{table}" in short and "longtable" not in short
    assert r"\usepackage{array, booktabs, ctex, longtable}" in tall


def test_latex_prints_a_verdict_in_words_and_its_part_in_a_comment(results):
    made = latex_of(shown_table(ARTICLES[1], "translation", results, ENGLISH.typeset))
    printed = re.sub(r"(?<!\\)%.*", "", made)
    assert r"\textit{worse than LN: holds}" in printed and "[2.1]" in made
    assert not re.search(r"\[\d+\.\d+\]|part 1 of claim", printed)
    assert re.search(r"\d \$\\pm\$ \d", printed) and not re.search("[\u00b1\u2212]", printed)
