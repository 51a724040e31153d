"""The articles' tables: each cell refers to existing evidence, and shows its result."""

import json
import re
import statistics

import pytest
from rich.cells import cell_len

from normlab.articles.article import load, load_all
from normlab.articles.evidence import PartItem, ScoreItem
from normlab.articles.language import CHINESE, ENGLISH, LANGUAGES
from normlab.articles.layout import folded, latex, markdown, page, shown, text
from normlab.articles.results import Results
from normlab.cli import main
from normlab.commands import study
from normlab.config.folders import CONFIG_DIR
from normlab.errors import UserError

RESULTS = CONFIG_DIR.parent / "results"
ARTICLES = load_all(CONFIG_DIR / "article")
TABLES = [(article, name) for article in ARTICLES.values() for name in article.tables]
CELL = """\
id: 9
title: {{zh: 文章}}
tables:
  one:
    section: "1"
    title: {{zh: '50 % & <b>'}}
    columns: [{{zh: '方法_'}}, {{zh: BLEU}}]
    rows:
      - - {{zh: LN}}
        - {{zh: '<35 %>', ours: {ours}}}
"""


@pytest.fixture(scope="module")
def results():
    return Results(RESULTS)


def article(folder, ours):
    """Return an article with one cell that has evidence."""
    path = folder / "9.yaml"
    path.write_text(CELL.format(ours=ours), "utf-8")
    return load(path)


def test_the_tables_of_the_five_articles_are_there():
    names = {number: list(each.tables) for number, each in ARTICLES.items()}
    assert names == {
        1: ["translation", "bert", "dimensions", "code", "summary"],
        2: ["order", "sequences", "inference", "points"],
        3: ["comparison", "choice"],
        4: ["reasons", "differences", "choice"],
        5: [],
    }


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_cell_leads_to_evidence_that_exists_and_fits_80_columns(results, code):
    for each, name in TABLES:
        table = shown(each, name, results, LANGUAGES[code])
        assert all(all(cells) for row in table.rows for cells in row.measured), (each.id, name)
        lines = text(table, 80).splitlines()
        assert max(map(cell_len, lines)) <= 80, (each.id, name)


def test_what_was_measured_is_said_in_chinese(results):
    for each, name in TABLES:
        table = shown(each, name, results, CHINESE, notes=False)
        cells = [cell for row in table.rows for measured in row.measured for cell in measured]
        left = re.findall(r"\b(?:updates|seeds|of|its|training|pictures)\b", " ".join(cells))
        assert not left, (each.id, name)


def test_a_bracket_is_not_left_at_the_end_of_a_line_nor_a_checks_number_alone():
    assert folded("达到（五次）", 5) == ["达到", "（五", "次）"]
    assert folded("holds [code.article_3 2]", 21) == ["holds", "[code.article_3 2]"]


def test_a_page_escapes_and_names_the_column_of_each_cell(results):
    table = shown(ARTICLES[1], "translation", results, ENGLISH)
    text = page([table._replace(caption="<b>")])
    assert "&lt;b&gt;" in text and "<b>" not in text and "+-" not in text
    assert text.count('<td data-column="BLEU">') == len(table.rows) == 3


def test_a_mean_is_that_of_the_records_and_a_verdict_that_of_the_ledger(results):
    lines = (RESULTS / "translation_norms" / "small" / "records.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    values = [
        run["scores"]["test/bleu_tok"]["value"]
        for run in runs
        if (run["row"], run["point"]) == ("bn", "placement=pre")
    ]
    said = f"{statistics.fmean(values):.2f} +- {statistics.stdev(values):.2f}"
    table = shown(ARTICLES[1], "translation", results, ENGLISH)
    (row,) = (row for row in table.rows if row.name == "Transformer + BN")
    assert row.measured[0][0] == f"{said} (Multi30k de-en, {len(values)} seeds)"
    assert row.measured[1][0] == f"{len(values)}/{len(values)} train"
    ledger = json.loads((RESULTS / "claims.json").read_text())
    parts = {f"{claim['id']}.{p['part']}": p["verdict"] for claim in ledger for p in claim["parts"]}
    for each, name in TABLES:
        for row in shown(each, name, results, ENGLISH, notes=False).rows:
            for said in (said for cell in row.measured for said in cell):
                if found := re.fullmatch(r"(?:.*: )?(.*) \[(\d+\.\d+)\]", said):
                    assert ENGLISH.verdicts[parts[found[2]]] == found[1]


def test_both_languages_show_the_same_numbers(results):
    for each, name in TABLES:
        both = [shown(each, name, results, language) for language in (ENGLISH, CHINESE)]
        scores = [
            [
                re.findall(r"[\d.]+ \+- [\d.]+", said)
                for row in t.rows
                for c in row.measured
                for said in c
            ]
            for t in both
        ]
        assert scores[0] == scores[1]
        assert "原文" in text(both[1], 80) and "measured" in text(both[0], 80)


def test_a_score_at_the_untrained_baseline_says_so(results):
    cell = {"of": "bert_norms/long", "row": "in", "at": "placement=pre"}
    said = ScoreItem(score="test/nsp_accuracy", **cell, percent=True).text(results, ENGLISH)
    assert said.startswith("50.0 +- 0.0 % (") and said.endswith(ENGLISH.untrained)


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ("[]", r"9.yaml: tables.one.rows\[0\]: every cell but the first needs `ours:`"),
        ("[{sentence: no}]", r"9.yaml: tables.one.rows\[0\]\[1\].ours\[0\]: needs one of score, "),
        ("[{part: 2.worse, of: x}]", r"9.yaml: .*\[0\]: there is no field `of`; choose from"),
    ],
)
def test_a_cell_without_evidence_is_an_error_that_names_it(tmp_path, ours, message):
    with pytest.raises(UserError, match=message):
        article(tmp_path, ours)


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ("[{part: 2.wrse}]", "no part 2.wrse in .*; parts of claim 2: worse, "),
        ("[{part: 99.worse}]", "no part 99.worse in "),
        ("[{check: modes.mismatch 9, zh: 文}]", "no finding modes.mismatch 9 in .* has 2"),
        (
            "[{score: test/bleu, of: translation_norms/small, row: xn}]",
            "no run of 'xn'; choose from ",
        ),
        (
            "[{score: test/blau, of: translation_norms/small, row: ln, at: placement=pre}]",
            "no score",
        ),
        ("[{score: test/bleu, of: translation_norms/huge, row: ln}]", "records.jsonl: missing"),
    ],
)
def test_evidence_that_does_not_exist_is_an_error_that_names_it(tmp_path, results, ours, message):
    with pytest.raises(UserError, match=message):
        shown(article(tmp_path, ours), "one", results, ENGLISH)


def test_numbers_of_a_check_that_its_chinese_asks_for_must_exist(tmp_path, results):
    made = article(tmp_path, "[{check: modes.mismatch 1, zh: '变化 {few:.1%}'}]")
    (note,) = shown(made, "one", results, CHINESE).notes
    assert re.fullmatch(r"\[modes\.mismatch 1\] 成立。变化 \d+\.\d%。", note)
    made = article(tmp_path, "[{check: modes.mismatch 1, zh: '变化 {moved:.1%}'}]")
    with pytest.raises(UserError, match="the finding's numbers are few, many"):
        shown(made, "one", results, CHINESE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("输出不同", "write {supports: 输出不同}"),
        ("{contradicts: 输出相同}", "now supports its claim"),
    ],
)
def test_a_chinese_finding_may_not_stay_if_the_check_finds_the_opposite(
    tmp_path, results, text, message
):
    made = article(tmp_path, "[{check: modes.mismatch 1, zh: {supports: 输出不同}}]")
    assert shown(made, "one", results, CHINESE).notes == ["[modes.mismatch 1] 成立。输出不同。"]
    made = article(tmp_path, f"[{{check: modes.mismatch 1, zh: {text}}}]")
    with pytest.raises(UserError, match=message):
        shown(made, "one", results, CHINESE)


def test_each_format_escapes_the_articles_words(tmp_path, results):
    table = shown(article(tmp_path, "[{says: {zh: '5 % _ <i>'}}]"), "one", results, CHINESE)
    made = latex(table)
    assert r"\caption{50 \% \& $<$b$>$" in made and r"方法\_ & BLEU \\" in made
    assert r"LN & $<$35 \%$>$ \\" in made and r"\textit{5 \% \_ $<$i$>$}" in made
    assert r"\usepackage{array, booktabs, ctex}" in made
    assert "&lt;35 %&gt;<small>5 % _ &lt;i&gt;</small>" in page([table])
    assert "<b>" not in page([table]) and "<i>" not in markdown(table)
    assert "**5 % _ &lt;i>**" in markdown(table)


def test_latex_has_no_pictures_and_a_line_for_each_half_of_a_row(results):
    made = latex(shown(ARTICLES[1], "summary", results, ENGLISH))
    assert not re.search("[\u2600-\u27bf]", made) and r"$\surd$ fit for varying lengths" in made
    heads = made.count(r"aspect & ")
    assert made.count(r" \\") == heads + 2 * len(ARTICLES[1].tables["summary"].rows)


def test_only_a_table_taller_than_a_page_breaks_between_pages(results):
    tall, short = (
        latex(shown(ARTICLES[2], name, results, CHINESE)) for name in ("points", "order")
    )
    assert r"\begin{longtable}" in tall and r"\begin{table}" not in tall
    assert r"\begin{table}" in short and "longtable" not in short


def test_text_folds_between_chinese_characters_and_keeps_closing_marks():
    assert folded("层归一化，很好。", 8) == ["层归一", "化，很", "好。"]
    assert folded('各科的"单科成绩"', 8) == ["各科的", '"单科成', '绩"']
    assert folded("a [padding.pollutes 3] b", 12) == ["a [padding.", "pollutes 3]", "b"]


def test_the_command_lists_all_tables_and_shows_one(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["documents"]) == 0
    assert "   translation  4    Machine translation" in capsys.readouterr().out
    assert main(["documents", "1", "--table", "bert", "--zh"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("BERT预训练任务（文章 1，第 4 节）\n") and "--notes" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["1", "--table", "bret"], "article 1 has no table 'bret'; choose from translation, bert"),
        (["6"], "numbered 1 to 5"),
        (["--latex"], "name an article"),
    ],
)
def test_what_no_article_has_is_named(capsys, words, message):
    assert main(["documents", *words]) == 1
    assert message in capsys.readouterr().err


def test_an_article_without_tables_points_to_its_claims(capsys):
    assert main(["documents", "5"]) == 0 and 'claims "article 5"' in capsys.readouterr().out
    assert main(["documents", "5", "--zh"]) == 0 and "没有表格" in capsys.readouterr().out
    assert main(["documents", "5", "--latex"]) == 1, "prose is no table"


def test_in_latex_a_verdict_is_words_and_the_part_it_is_about_a_comment(results):
    made = latex(shown(ARTICLES[1], "translation", results, ENGLISH))
    printed = re.sub(r"(?<!\\)%.*", "", made)
    assert r"\textit{worse than LN: holds}" in printed and "[2.1]" in made
    assert not re.search(r"\[\d+\.\d+\]|part 1 of claim", printed)


@pytest.mark.parametrize("form", ["--markdown", "--html"])
def test_each_form_says_which_claim_its_marks_name(capsys, form):
    assert main(["documents", "2", "--table", "order", form]) == 0
    assert "[2.1] is part 1 of claim 2" in capsys.readouterr().out


def test_without_results_the_error_says_where_they_are(tmp_path, capsys):
    assert main(["documents", "1", "--results", str(tmp_path)]) == 1
    assert "name its folder with --results" in capsys.readouterr().err


def test_run_shows_the_plan_of_each_study_before_any_run(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(study, "main", lambda argv: calls.append(argv) or 0)
    assert main(["documents", "1", "--table", "translation", "--run", "scale=smoke"]) == 0
    translation = ["translation_norms", "rows=['ln','bn','none']", "placement=pre", "scale=smoke"]
    batching = ["batching", "rows=['ln','bn']", "scale=smoke"]
    assert calls == [[v, *job] for v in ("plan", "run") for job in (translation, batching)]
    assert main(["documents", "1", "--table", "summary", "--run"]) == 1
    assert "has no scores of runs" in capsys.readouterr().err
    assert main(["documents", "1", "--run"]) == 1 and "--table" in capsys.readouterr().err


def test_the_claims_of_an_article_are_listed(capsys):
    ledger = json.loads((RESULTS / "claims.json").read_text())
    theirs = [claim["id"] for claim in ledger if "article 3" in claim["articles"]]
    for words in (["article 3"], ["article", "3"]):
        assert main(["claims", *words]) == 0
        found = re.findall(r"(?m)^([ \d]\d)  \[", capsys.readouterr().out)
        assert list(map(int, found)) == theirs
    assert main(["claims", "article 9"]) == 1 and "articles 1 to 5" in capsys.readouterr().err
    assert main(["claims", "seven"]) == 1 and "expected a number" in capsys.readouterr().err


def test_the_place_of_a_part_is_its_number_in_the_ledger(results):
    assert PartItem(part="2.size").text(results, ENGLISH) == "does not hold [2.5]"
