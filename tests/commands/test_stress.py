"""The stress test of the rate: what a rising rate does to a model, read from its run."""

import json

import pytest

from normlab.cli import main as cli

SMALL = ("task=digits", "model=lstm", "model.dim=8", "model.read=rows", "observe.threads=1")


def test_rates_rise_until_the_loss_is_that_of_frequencies_and_a_second_call_makes_no_run(
    tmp_path, capsys
):
    arguments = ["--norms", "ln", "--steps", "4", "--from", "0.05", "--to", "100"]
    arguments += [f"runs_dir={tmp_path / 'runs'}", "optim=rmsprop", "--json", str(tmp_path / "f")]
    assert cli(["stress", *SMALL, *arguments]) == 0
    out = capsys.readouterr().out
    (found,) = json.loads((tmp_path / "f").read_text())["runs"]
    assert found["loss"] < found["floor"] == pytest.approx(2.3, abs=0.01)
    assert 0.05 <= found["best"] <= found["largest"] < 100 and not found["open"]
    assert f"{found['largest']:.3g}" in out and max(map(len, out.splitlines())) <= 80
    (record,) = (tmp_path / "runs").rglob("record.json")
    before = record.stat().st_mtime_ns
    assert cli(["stress", *SMALL, *arguments]) == 0
    assert record.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optim.lr=1"], "optim.lr=1: the test sets optim.lr itself"),
        (["budget.steps=3"], "the test sets budget.steps"),
        (["--from", "1", "--to", "0.1"], "rates are above 0 and rise"),
        (["--seeds", "1,x"], "--seeds 1,x"),
        (["--norms", "lm"], "lm"),
    ],
)
def test_what_the_test_sets_itself_and_bad_values_are_refused(arguments, said, capsys):
    assert cli(["stress", *SMALL, *arguments]) == 1
    assert said in capsys.readouterr().err
