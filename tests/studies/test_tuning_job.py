"""Every row is tuned over the same values; only the choice in the study's file changes."""

import json
import re

import pytest

from normlab.commands import study as command
from normlab.studies.load import load_study, tuning_of
from tests.studies.tunings import tuning, value

BEST = {"ln": "2e-3", "bn": "4e-3"}
TUNING = "{key: optim.lr, values: [1e-3, 2e-3, 4e-3], seeds: [101], score: valid/bleu}"


def path_of(place):
    return place.folder / "configs" / "study" / "one.yaml"


def edit(place, *changes):
    """Replace texts in the study's file."""
    for old, new in changes:
        assert old in path_of(place).read_text()
        path_of(place).write_text(path_of(place).read_text().replace(old, new))


def study(place):
    return load_study("one", place.folder / "configs")


def trials(place, of, *extra):
    found = study(place)
    place.plan(found.trials("smoke", tuning_of(found, "smoke"), extra), of)


def by_best(run):
    good = value(run) == BEST.get(run.row, "1e-3")
    return {"scores": {"valid/bleu": 20.0 if good else 10.0}}


def test_tuning_writes_the_best_value_of_each_row_and_changes_nothing_else(tuned, capsys):
    trials(tuned, by_best)
    before = path_of(tuned).read_text()
    code, out = tuning(capsys)
    assert code == 0 and "| bn | 10 | 10 | 20 | 4e-3 |" in out
    rates = "    rates:\n      ln: [optim.lr=2e-3]\n      bn: [optim.lr=4e-3]\n"
    after = path_of(tuned).read_text()
    assert after.replace(rates, "") == before and rates in after
    chosen = {run.row: value(run) for run in study(tuned).planned("smoke", seeds=[1])}
    assert chosen == BEST
    assert "- at the edge of the values, so values beyond it may be better: bn\n" in out


def test_a_new_row_can_be_tuned_by_itself_and_the_others_keep_their_trials(tuned, capsys):
    trials(tuned, by_best)
    assert tuning(capsys)[0] == 0
    kept = json.loads((tuned.folder / "results/one/tuning.json").read_text())
    edit(tuned, ("bn: [norm=bn]", "bn: [norm=bn], none: [norm=none]"))
    trials(tuned, by_best)
    code, out = tuning(capsys, "rows=none")
    assert code == 0 and "1 rows and points, 3 runs left" in out
    assert len(tuned.lines("calls")) == 6 + 3 and "| ln |" not in out
    rates = study(tuned).scale("smoke").rates
    assert {row: of for row, (of,) in rates.items()} == {
        row: f"optim.lr={rate}" for row, rate in (*BEST.items(), ("none", "1e-3"))
    }
    now = json.loads((tuned.folder / "results/one/tuning.json").read_text())
    (*others, none) = now["scales"]["smoke"]["rows"]
    assert others == kept["scales"]["smoke"]["rows"] and none["chosen"] == "1e-3"
    assert "9 trials" in (tuned.folder / "results/one/tuning.md").read_text()


def test_a_part_of_the_grid_can_be_tuned_by_itself(tuned, capsys):
    edit(tuned, ("grid: {}", "grid: {placement: {pre: [placement=pre], post: [placement=post]}}"))
    trials(tuned, by_best)
    code, out = tuning(capsys, "placement=post")
    assert code == 0 and "2 rows and points, 6 runs left" in out
    rates = {f"{row} @ placement=post": (f"optim.lr={rate}",) for row, rate in BEST.items()}
    assert study(tuned).scale("smoke").rates == rates
    assert tuning(capsys)[0] == 0 and len(tuned.lines("calls")) == 12
    assert len(study(tuned).scale("smoke").rates) == 4


def test_a_diverged_trial_is_worst_and_a_row_that_never_trains_loses_its_rate(tuned, capsys):
    rates = "    rates:\n      ln: [optim.lr=9]\n      bn: [optim.lr=9]\n    tuning:"
    edit(tuned, ("    tuning:", rates))

    def of(run):
        diverges = run.row == "ln" or value(run) == "2e-3"
        return {**by_best(run), "status": "diverged" if diverges else "finished"}

    trials(tuned, of)
    code, out = tuning(capsys)
    assert code == 0 and "| bn | 10 | diverged at 100 | 20 | 4e-3 |" in out
    assert study(tuned).scale("smoke").rates == {"bn": ("optim.lr=4e-3",)}
    assert "no value trains ln, so its old rate (optim.lr=9) is removed\n" in out
    (row,) = re.findall(r"\| ln .*", (tuned.folder / "results/one/tuning.md").read_text())
    assert row.endswith("| none |")


def test_no_value_is_chosen_if_a_trial_fails(tuned, capsys):
    before = path_of(tuned).read_text()
    trials(tuned, lambda run: {**by_best(run), "fails": run.row == "bn"})
    code, out = tuning(capsys)
    assert code == 1 and path_of(tuned).read_text() == before
    assert not (tuned.folder / "results").exists() and "no such thing" in out


def test_a_spent_budget_stops_the_trials_and_the_same_command_resumes(tuned, capsys):
    def of(run):
        return {**by_best(run), "seconds": 30.0 if run.row == "bn" else 0.0}

    trials(tuned, of)
    code, out = tuning(capsys, "--budget", "2s")
    assert code == 0 and "resume with: normlab study tune one" in out
    assert not (tuned.folder / "results").exists()
    assert sum(call == "tuning ln seed=101" for call in tuned.lines("calls")) == 3


def test_rows_in_whole_runs_are_tried_without_the_overrides_for_trials(tuned):
    edit(tuned, (TUNING, f"{TUNING[:-1]}, overrides: [validate.every=25], whole_runs: [bn]}}"))
    found = study(tuned)
    planned = found.trials("smoke", tuning_of(found, "smoke"))
    assert {run.row for run in planned if "validate.every=25" in run.overrides} == {"ln"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds: [101]", "seeds: [3]", "3 is a seed of the study"),
        ("values: [1e-3, 2e-3, 4e-3]", "values: [1e-3]", r"too few values \(1\)"),
        ("score: valid/bleu", "score: test/bleu", r"score: Expected `str` matching regex"),
        (", score: valid/bleu", "", "missing required field `score`"),
        ("valid/bleu}", "valid/bleu, whole_runs: [rms]}", "rms. does not exist; choose"),
        ("valid/bleu", "valid/blue", "is not a score with a direction in .*; use .*nll, perp"),
    ],
)
def test_an_invalid_tuning_is_refused_before_any_trial(tuned, old, new, message):
    edit(tuned, (old, new))
    with pytest.raises(ValueError, match=message):
        command.main(["tune", "one"])
    assert tuned.lines("calls") == []


def test_a_choice_from_trials_with_other_overrides_is_not_written(tuned, capsys):
    before = path_of(tuned).read_bytes()
    with pytest.raises(ValueError, match=r"budget.steps=7 changes the trials .*no-write"):
        command.main(["tune", "one", "budget.steps=7", "device=cpu"])
    assert tuned.lines("calls") == [] and path_of(tuned).read_bytes() == before
    trials(tuned, by_best, "budget.steps=7")
    assert tuning(capsys, "budget.steps=7", "--no-write")[0] == 0
    assert len(tuned.lines("calls")) == 6 and path_of(tuned).read_bytes() == before
