"""Every row is tuned by the same values; the choice goes into the study's file and nothing else."""

import json
import math

import pytest
import yaml

from normlab.commands import _study_tune
from normlab.commands import study as command
from normlab.config.registry import CONFIG_DIR
from normlab.reports.tuning import read
from normlab.studies import load_study, tuning_of
from normlab.studies import runs as studied
from normlab.studies.tuning import best, sign_of, with_rates, worse_than_median
from tests.studies.stand_in import StandIn

STUDY = """\
# normlab study run {name}
# Norms, for tests.
document: D0
table: Norms
claims: [1]
rows: {rows}
grid: {{}}
columns: [test/bleu]
figures: {{}}
scales:
  smoke:
    overrides: [task=toy, budget.steps=100]  # few
    seeds: [1, 2]
    minutes: 0.5
    data: the built-in corpus
    {tuning}
  small:  # not tuned
    overrides: [task=toy]
    seeds: [1]
    minutes: 1
    data: the built-in corpus
"""
TUNING = """tuning:  # the same for all
      key: optim.lr
      values: [1e-3, 2e-3, 4e-3]
      seeds: [101]
      score: valid/bleu
      overrides: [validate.every=25]"""
BEST = {"ln": "2e-3", "bn": "4e-3"}


@pytest.fixture(scope="module")
def composed():
    compose, known = studied.composed, {}

    def once(run):
        if run.overrides not in known:
            known[run.overrides] = compose(run)
        return known[run.overrides]

    return once


@pytest.fixture
def place(tmp_path, monkeypatch, composed):
    """Return the stand-in for runs; two studies lie beside it, the second tuned like the first."""
    folder = tmp_path / "configs" / "study"
    folder.mkdir(parents=True)
    rows = "{ln: [norm=ln], bn: [norm=bn]}"
    (folder / "one.yaml").write_text(STUDY.format(name="one", rows=rows, tuning=TUNING))
    rows = "{ln: [norm=ln], none: [norm=none]}"
    (folder / "two.yaml").write_text(STUDY.format(name="two", rows=rows, tuning="tuning: one"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(studied, "composed", composed)
    monkeypatch.setattr(studied, "data_problem", lambda run: None)
    monkeypatch.setattr(
        _study_tune, "load_study", lambda name: load_study(name, tmp_path / "configs")
    )
    monkeypatch.setattr(_study_tune, "study_file", lambda name: folder / f"{name}.yaml")
    found = StandIn(tmp_path)
    found.install(monkeypatch)
    return found


def path_of(place, name="one"):
    return place.folder / "configs" / "study" / f"{name}.yaml"


def edit(place, *changes, name="one"):
    """Replace texts of the file of a study."""
    path = path_of(place, name)
    for old, new in changes:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


def study(place, name="one"):
    return load_study(name, place.folder / "configs")


def trials(place, name, of, *extra):
    found = study(place, name)
    load = lambda other: study(place, other)  # noqa: E731
    place.plan(found.trials("smoke", tuning_of(found, "smoke", load), extra), of)


def value(run):
    return next(o for o in reversed(run.overrides) if o.startswith("optim.lr=")).split("=")[1]


def by_best(run):
    good = value(run) == BEST.get(run.row, "1e-3")
    return {"scores": {"valid/bleu": 20.0 if good else 10.0}}


def tuned(place, capsys, *argv):
    code = command.main(["tune", *argv, "--processes", "1", "--results", "results"])
    return code, capsys.readouterr().out


def test_the_best_value_of_each_row_is_written_and_comments_stay(place, capsys):
    trials(place, "one", by_best)
    path = place.folder / "configs" / "study" / "one.yaml"
    before = path.read_text()
    code, out = tuned(place, capsys, "one")
    assert code == 0 and "| bn | 10 | 10 | 20 | 4e-3 |" in out
    after = path.read_text()
    rates = "    rates:\n      ln: [optim.lr=2e-3]\n      bn: [optim.lr=4e-3]\n"
    assert after.replace(rates, "") == before and rates in after
    chosen = {run.row: value(run) for run in study(place).planned("smoke", seeds=[1])}
    assert chosen == BEST
    assert "at the edge of the values, wider ones may be better: bn: 4e-3\n" in out
    assert "as good with another value" not in out and "beside a value" not in out


def rows(*scores):
    return [{"step": 25 * n, "valid/bleu": score} for n, score in enumerate(scores, 1)]


def test_a_hopeless_trial_is_pruned_and_is_not_diverged(place, capsys):
    def of(run):
        good = value(run) != "4e-3"
        scores = {"valid/bleu": 20.0 if good else 5.0}
        seen = rows(1, 9, 12, 20) if good else rows(1, 2)
        return {"scores": scores, "rows": seen, "seconds": 0.0 if good else 30.0}

    trials(place, "one", of)
    code, out = tuned(place, capsys, "one")
    assert code == 0 and len(place.lines("stopped")) == 2
    assert "| ln | 20 | 20 | pruned at 50 (2) | 1e-3 |" in out and "diverged" not in out
    assert "| ln | 20 | 20 | pruned at 50 (2) | 1e-3 |" in tuned(place, capsys, "one")[1]
    assert len(place.lines("calls")) == 6, "what was pruned is not begun again"


def test_a_run_that_diverges_is_the_worst(place, capsys):
    def of(run):
        if value(run) == "1e-3":
            return {"scores": {"valid/bleu": 90.0}, "status": "diverged"}
        return by_best(run)

    trials(place, "one", of)
    code, out = tuned(place, capsys, "one")
    assert code == 0 and "| ln | diverged at 100 | 20 | 10 | 2e-3 |" in out
    assert "beside a value that diverged: a longer run may diverge, too: ln: 2e-3\n" in out


def test_where_a_trial_fails_nothing_is_chosen(place, capsys):
    path = place.folder / "configs" / "study" / "one.yaml"
    before = path.read_text()
    trials(place, "one", lambda run: {**by_best(run), "fails": run.row == "bn"})
    code, out = tuned(place, capsys, "one")
    assert code == 1 and path.read_text() == before
    assert not (place.folder / "results").exists() and "no such thing" in out


def test_a_spent_budget_stops_the_trials_and_the_next_call_goes_on(place, capsys):
    def of(run):
        return {**by_best(run), "seconds": 30.0 if run.row == "bn" else 0.0}

    trials(place, "one", of)
    code, out = tuned(place, capsys, "one", "--budget", "2s")
    assert code == 0 and "resume with: normlab study tune one" in out
    assert not (place.folder / "results").exists()
    trials(place, "one", by_best)
    code, out = tuned(place, capsys, "one")
    assert code == 0 and "| bn | 10 | 10 | 20 | 4e-3 |" in out
    assert sum(call == "tuning ln seed=101" for call in place.lines("calls")) == 3


def test_rows_alone_are_tuned_and_rates_and_trials_of_the_others_stay(place, capsys):
    trials(place, "one", by_best)
    tuned(place, capsys, "one")
    kept = json.loads((place.folder / "results/one/tuning.json").read_text())
    edit(place, ("bn: [norm=bn]", "bn: [norm=bn], none: [norm=none]"))
    trials(place, "one", by_best)
    code, out = tuned(place, capsys, "one", "rows=none")
    assert code == 0 and "1 rows and points, at most 3 runs" in out
    assert len(place.lines("calls")) == 6 + 3 and "| ln |" not in out
    rates = study(place).scale("smoke").rates
    assert {row: of for row, (of,) in rates.items()} == {
        row: f"optim.lr={best}" for row, best in (*BEST.items(), ("none", "1e-3"))
    }
    now = json.loads((place.folder / "results/one/tuning.json").read_text())
    (*others, none) = now["scales"]["smoke"]["rows"]
    assert others == kept["scales"]["smoke"]["rows"] and none["chosen"] == "1e-3"
    assert "9 trials" in (place.folder / "results/one/tuning.md").read_text()


def test_rows_of_whole_runs_are_tried_without_the_overrides_of_trials(place, capsys):
    path = place.folder / "configs" / "study" / "one.yaml"
    path.write_text(path.read_text().replace(TUNING, f"{TUNING}\n      whole_runs: [bn]"))
    trials(place, "one", by_best)
    code, out = tuned(place, capsys, "one")
    assert code == 0 and "budget for every row, but for bn, tried for whole runs; 6 trials" in out
    found = study(place)
    planned = found.trials("smoke", tuning_of(found, "smoke"))
    short = {run.row for run in planned if "validate.every=25" in run.overrides}
    assert short == {"ln"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds: [101]", "seeds: [3]", "3 is a seed of the study"),
        ("values: [1e-3, 2e-3, 4e-3]", "values: [1e-3]", "1 is no choice"),
        ("score: valid/bleu", "score: test/bleu", r"score: Expected `str` matching regex"),
        ("      score: valid/bleu\n", "", "missing required field `score`"),
        ("      overrides: [v", "      whole_runs: [rms]\n      overrides: [v", "no .rms.: there"),
    ],
)
def test_a_tuning_that_is_wrong_is_named(place, old, new, message):
    path = place.folder / "configs" / "study" / "one.yaml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        study(place)


def test_a_choice_by_trials_that_are_not_planned_is_not_written(place, capsys):
    before = path_of(place).read_bytes()
    with pytest.raises(
        ValueError, match=r"one scale=smoke .* \(budget.steps=7, planned 100\).*no-w"
    ):
        command.main(["tune", "one", "budget.steps=7", "device=cpu"])
    assert place.lines("calls") == [] and path_of(place).read_bytes() == before
    trials(place, "one", by_best, "budget.steps=7")
    assert tuned(place, capsys, "one", "budget.steps=7", "--no-write")[0] == 0
    assert len(place.lines("calls")) == 6 and path_of(place).read_bytes() == before


def test_a_row_for_which_no_value_trains_loses_its_rate(place, capsys):
    rates = "rates:\n      ln: [optim.lr=9]\n      bn: [optim.lr=9]\n    tuning:"
    edit(place, ("tuning:", rates))
    status = {"ln": "diverged", "bn": "finished"}
    trials(place, "one", lambda run: {**by_best(run), "status": status[run.row]})
    code, out = tuned(place, capsys, "one")
    assert code == 0 and study(place).scale("smoke").rates == {"bn": ("optim.lr=4e-3",)}
    assert "no value trains for ln: its former rate, optim.lr=9, is removed\n" in out
    assert "- ln: no value trains\n" in (place.folder / "results/one/tuning.md").read_text()


@pytest.mark.parametrize(
    ("score", "why"),
    [("valid/length_ratio", "has no better direction in"), ("valid/blue", "is no score in SCORES")],
)
def test_a_score_without_a_known_direction_is_refused_before_any_trial(place, score, why):
    edit(place, ("valid/bleu", score))
    with pytest.raises(ValueError, match=f"{score} {why} .*glossary.py: .* nll, perplexity"):
        command.main(["tune", "one"])
    assert place.lines("calls") == []


def test_a_scale_that_can_hold_no_rates_is_refused_before_any_trial(place, capsys):
    text = path_of(place).read_text()
    braces = yaml.safe_load(text)["scales"]["smoke"]
    start, end = text.index("\n    overrides:"), text.index("  small:")
    edit(place, (text[start:end], f" {json.dumps(braces)}\n"))
    with pytest.raises(ValueError, match=r"one.yaml: scales.smoke: write one key per line"):
        command.main(["tune", "one"])
    assert place.lines("calls") == []


def test_published_choices_follow_from_their_trials():
    """Every tuning.json in results/ chooses as the code of now does."""
    checked = 0
    for path in sorted((CONFIG_DIR.parent / "results").glob("*/tuning.json")):
        for scale, found in read(path).items():
            sign = sign_of(found["tuning"]["score"])
            for row in found["rows"]:
                scores = {trial["value"]: trial["score"] for trial in row["trials"]}
                whole = len(scores) == len(found["tuning"]["values"])
                chosen = best(scores, sign) if whole else None
                assert row["chosen"] == chosen, (path, scale, row["row"])
                checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("seen", "others", "pruned"),
    [
        ({(0, 50): 5.0}, [{(0, 50): 1.0}, {(0, 50): 3.0}], True),
        ({(0, 50): 2.0}, [{(0, 50): 1.0}, {(0, 50): 3.0}], False),  # the median itself
        ({(0, 25): 0.5, (0, 50): 5.0}, [{(0, 50): 1.0}, {(0, 50): 3.0}], False),  # by its best
        ({(0, 25): 5.0}, [{(0, 25): 1.0}, {(0, 25): 1.0}], False),  # before half of its run
        ({(1, 25): 5.0}, [{(1, 25): 1.0}, {(1, 25): 1.0}], True),  # of the second seed
        ({(0, 50): 5.0}, [{(0, 50): 1.0}], False),  # too few others
        ({(0, 50): 5.0}, [{(0, 25): 1.0}, {(0, 25): 1.0}], False),  # none at its step
        ({(0, 50): math.nan}, [{(0, 50): 1.0}, {(0, 50): 1.0}], True),
    ],
)
def test_a_trial_is_pruned_that_is_worse_than_the_median_of_the_others(seen, others, pruned):
    assert worse_than_median(seen, others, warmup=50) == pruned


RATES = """\
scales:
  smoke:
    overrides: [task=toy]  # few
    seeds: [1, 2]
    tuning: one
  small:  # not tuned
    seeds: [1]
"""


def test_rates_go_into_the_text_of_a_study_and_nothing_else_changes():
    once = with_rates(RATES, "smoke", {"ln": ["optim.lr=1e-3"]})
    noted = once.replace("[optim.lr=1e-3]\n", "[optim.lr=1e-3]  # why\n")
    twice = with_rates(noted, "smoke", {"bn, so @ a=1": ["optim.lr=1"]})
    assert "      ln: [optim.lr=1e-3]  # why\n" in twice
    assert yaml.safe_load(twice)["scales"]["smoke"]["rates"]["bn, so @ a=1"] == ["optim.lr=1"]
    changed = with_rates(twice, "smoke", {"ln": ["optim.lr=2"]})
    assert yaml.safe_load(changed)["scales"]["smoke"]["rates"]["ln"] == ["optim.lr=2"]


@pytest.mark.parametrize("rates", ["rates: {ln: [optim.lr=1]}", "rates:\n      ln: [optim.lr=1]"])
def test_rates_are_taken_away_alone_and_all_together(rates):
    there = RATES.replace("tuning:", f"{rates}\n    tuning:")
    assert with_rates(there, "smoke", {"ln": None}) == RATES
    assert with_rates(RATES, "smoke", {"ln": None}) == RATES
    other = with_rates(there, "smoke", {"ln": None, "bn": ["optim.lr=2"]})
    assert yaml.safe_load(other)["scales"]["smoke"]["rates"] == {"bn": ["optim.lr=2"]}
