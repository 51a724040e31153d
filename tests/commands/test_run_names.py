"""A run can be given by its name wherever a command takes RUN."""

import os

import pytest

from normlab.cli import main
from normlab.notebook import load_records
from normlab.records.store import RunStore
from tests.records.examples import config, record


@pytest.fixture
def baseline(tmp_path, monkeypatch):
    """Store two seeds of a run named `baseline`, and another run without a name."""
    monkeypatch.chdir(tmp_path)
    store = RunStore("runs")
    observe = config()["observe"] | {"name": "baseline", "tags": ["first"]}
    for kept in (
        record(seed=1, bleu=30.0, norm="ln", observe=observe),
        record(seed=2, bleu=31.0, norm="ln", observe=observe),
        record(seed=1, bleu=10.0, norm="bn"),
    ):
        store.write(kept, store.run_dir(kept.config))


def test_compare_and_report_accept_the_name_of_a_run(baseline, capsys):
    assert main(["compare", "baseline", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert "30.50 +- 0.71" in out and "\n| bn |" not in out
    assert main(["report", "baseline"]) == 0 and os.path.getsize("report/report.html")
    assert main(["compare", "--where", "name=baseline", "--markdown"]) == 0
    assert "\n| bn |" not in capsys.readouterr().out
    assert [run.seed for run in load_records(name="baseline")] == [1, 2]


def test_list_shows_named_runs_in_a_folder_of_that_name(baseline, capsys):
    assert main(["list", "runs"]) == 0
    named = [line for line in capsys.readouterr().out.splitlines() if "first" in line]
    assert len(named) == 2 and all(line.startswith("runs/baseline/") for line in named)


@pytest.mark.parametrize("command", ["compare", "report", "eval", "inspect", "export"])
def test_a_misspelt_name_gets_a_suggestion(command, baseline, capsys):
    assert main([command, "baselin"]) == 1
    assert capsys.readouterr().err.endswith("Did you mean runs/baseline?\n")


@pytest.mark.parametrize(
    ("argv", "setting"),
    [
        (["compare", "ln", "bn"], "--where norm=ln,bn"),
        (["report", "LayerNorm"], "--where norm=ln"),
        (["compare", "norm=ln"], "--where norm=ln"),
        (["inspect", "ln"], "norm=ln"),
        (["inspect", "sandwich"], "placement=sandwich"),
    ],
)
def test_an_option_in_place_of_a_run_is_suggested_as_a_setting(argv, setting, baseline, capsys):
    assert main(argv) == 1
    assert capsys.readouterr().err.endswith(f": no such run. Did you mean {setting}?\n")


def test_a_path_takes_precedence_over_a_name(baseline, tmp_path, capsys):
    (tmp_path / "baseline").mkdir()
    assert main(["compare", "baseline"]) == 1 and "no run in baseline" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["eval", "--limit", "2"], ["inspect", "--only", "leak"], ["export", "--fold"]]
)
def test_eval_inspect_and_export_load_a_run_by_its_name(
    words, finished, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(finished)
    assert main([words[0], "mine", *words[1:]]) == 0, capsys.readouterr().err
