"""The command that measures an open part: tuning that is missing, and times of published runs."""

import json

import pytest
from msgspec.structs import replace

from normlab.claims.evidence import RecordAt
from normlab.claims.ledger import ledger, with_measurements
from tests.claims.handmade_study import STUDY, claim, configs, contrast, runs_of, side

TUNING = """    rates: {ln: [optim.lr=1e-3]}
    tuning:
      key: optim.lr
      values: [5e-4, 1e-3, 2e-3]
      seeds: [101]
      score: valid/bleu
      overrides: [budget.steps=50]
"""
TUNED = STUDY.format(grid="{}").replace("optim.lr=5e-4]", "budget.steps=100]") + TUNING
RUN = "normlab study run made scale=small rows=ln,bn"


def open_part(folder, evidence):
    """Return the measurement of a contrast between `ln` and `bn`."""
    claims = [claim(folder, contrast())]
    (entry,) = with_measurements(ledger(claims, evidence), evidence)
    more = entry.primary[0].to_measure
    assert more is not None
    return more


@pytest.mark.parametrize("limit", ["budget.steps=", "budget.steps=null, budget.tokens="])
def test_a_command_begins_with_the_trials_that_choose_a_missing_rate(limit, tmp_path):
    root = configs(tmp_path)
    (root / "study" / "made.yaml").write_text(TUNED.replace("budget.steps=", limit))
    more = open_part(root, runs_of(root, []))
    tune, *commit, run = more.command.split(" && ")
    assert (tune, run) == ("normlab study tune made scale=small rows=bn", RUN)
    assert commit == ["git add configs results", "git commit -m rates"]
    # Ten runs of 6 minutes, and three trials of half the length.
    assert more.cost.startswith("3 trials and 10 runs, about 69 min; data: ")


def test_a_row_that_no_rate_trains_is_not_tuned_again(tmp_path):
    root, results = configs(tmp_path / "configs"), tmp_path / "results"
    (root / "study" / "made.yaml").write_text(TUNED)
    tried = [{"value": value} for value in ("5e-4", "1e-3", "2e-3")]
    (results / "made").mkdir(parents=True)
    for trials in (tried, tried[:2]):
        row = {"row": "bn", "point": "", "chosen": None, "trials": trials}
        tuning = {"tuning": {"values": [each["value"] for each in tried]}, "rows": [row]}
        content = {"format": "normlab.tuning/1", "study": "made", "scales": {"small": tuning}}
        (results / "made" / "tuning.json").write_text(json.dumps(content))
        evidence = runs_of(root, [])
        evidence.read(results)
        assert (open_part(root, evidence).command == RUN) == (trials == tried)


def test_the_time_is_the_median_of_the_published_runs_of_each_row(tmp_path):
    root = configs(tmp_path)
    evidence = runs_of(root, [])
    for norm, seconds in (("ln", 60.0), ("bn", 120.0)):
        for record in side(norm, 30.0, 3):
            timed = replace(record, budget=replace(record.budget, wall_seconds=seconds))
            folder = f"results/made/small:{norm}@seed{record.seed}"
            evidence.add(("made", "small"), RecordAt(timed, folder))
    more = open_part(root, evidence)
    assert more.command == f"{RUN} seeds=4,5"
    assert more.cost.startswith("4 runs, about 6 min on CPU; data: ")
