"""`normlab articles`: what it lists, shows and runs, and what it refuses."""

from functools import partial

import pytest

from normlab.cli import main
from normlab.commands import _study_runs


def test_the_command_lists_all_tables_and_shows_one(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["articles"]) == 0
    listed = capsys.readouterr().out
    assert "   translation  4    Machine translation" in listed
    assert "normlab articles --html" in listed
    assert main(["articles", "1", "--table", "bert", "--zh"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("BERT预训练任务（文章 1，第 4 节）\n") and "--notes" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["1", "--table", "bret"], "article 1 has no table 'bret'; choose from translation, bert"),
        (["6"], "numbered 1 to 5"),
        (["--latex"], "pass the number of an article"),
        (["5", "--latex"], "article 5 has no tables"),
        (["1", "--table", "summary", "--run"], "no cell of this table is a score of training runs"),
        (["1", "--run"], "--run needs --table with one of"),
    ],
)
def test_unknown_articles_tables_and_unusable_flags_raise_an_error(capsys, words, message):
    assert main(["articles", *words]) == 1
    assert message in capsys.readouterr().err


def test_an_article_without_tables_points_to_its_claims(capsys):
    assert main(["articles", "5"]) == 0 and 'claims "article 5"' in capsys.readouterr().out
    assert main(["articles", "5", "--zh"]) == 0 and "没有表格" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["--markdown", "--html"])
def test_each_format_explains_its_marks_for_claims(capsys, form):
    assert main(["articles", "2", "--table", "order", form]) == 0
    assert "[2.1] is part 1 of claim 2" in capsys.readouterr().out


def test_without_results_the_error_asks_for_their_folder(tmp_path, capsys):
    assert main(["articles", "1", "--results", str(tmp_path)]) == 1
    assert "pass its folder with --results" in capsys.readouterr().err


def test_run_plans_all_studies_before_it_runs_any(monkeypatch):
    calls = []
    for name in ("print_plan", "run_studies"):
        act = partial(lambda name, jobs, *more: calls.append((name, jobs)) or 0, name)
        monkeypatch.setattr(_study_runs, name, act)
    assert main(["articles", "1", "--table", "translation", "--run", "scale=smoke"]) == 0
    (planned, jobs), (started, same) = calls
    assert (planned, started) == ("print_plan", "run_studies") and jobs == same
    assert [job.study.name for job in jobs] == ["translation_norms", "batching"]
    places = [{run.planned.row_and_point for run in job.runs} for job in jobs]
    assert places[0] == {(row, "placement=pre") for row in ("ln", "bn", "none")}
    assert {row for row, _ in places[1]} == {"ln", "bn"}
