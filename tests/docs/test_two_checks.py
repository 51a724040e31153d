"""What is published has two checks, and who makes one is told of the other."""

import pytest

from normlab.commands.study import main
from normlab.reports.published import publish
from normlab.studies import load_study
from tests.docs.pages import IN_STEP, ROOT, fenced
from tests.reports.tables import made, planned

CHECKS = ("normlab study verify", "normlab claims --verify")


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [(planned("ln", seed), made("ln", seed, {"test/bleu": 1.0 + seed})) for seed in (1, 2)]
    publish(tmp_path / "results", load_study("padding"), "cpu", runs)
    return tmp_path / "results"


def last_line(capsys, *argv):
    code = main(["verify", *argv])
    return code, (capsys.readouterr().out.splitlines() or [""])[-1]


def test_a_check_of_the_tables_names_that_of_the_ledger(results, capsys):
    assert last_line(capsys) == (0, "results/padding/cpu: up to date")  # no ledger lies there
    (results / "claims.md").write_text("the ledger")
    assert last_line(capsys) == (0, "the ledger: normlab claims --verify")
    assert last_line(capsys, "padding") == (0, "results/padding/cpu: up to date")
    results.rename(results.with_name("mine"))
    said = "the ledger: normlab claims --verify --results mine"
    assert last_line(capsys, "--results", "mine") == (0, said)


def test_a_check_that_fails_names_no_other(results, capsys):
    (results / "claims.md").write_text("the ledger")
    (results / "padding" / "cpu" / "table.csv").unlink()
    assert last_line(capsys) == (1, "")


@pytest.mark.parametrize("page", [page for page in IN_STEP if page.name == "tutorial.md"])
def test_the_tutorial_has_both(page):
    for side in (page, IN_STEP[page]):
        code = "\n".join(fenced(side.read_text(), "bash"))
        assert all(check in code for check in CHECKS), side.relative_to(ROOT)
