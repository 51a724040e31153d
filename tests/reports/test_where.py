"""`--where KEY=VALUE`: which runs it selects, and what it says about values that no run has."""

from pathlib import Path

import pytest

from normlab.errors import UserError
from normlab.reports.runs import NOT_ENDED, Run, unplaced_run
from normlab.reports.where import matching_runs, none_matching, unmatched_values
from tests.records.examples import record


@pytest.fixture
def runs():
    ended = [
        unplaced_run(None, record(norm=norm, seed=seed)) for seed, norm in enumerate(("ln", "bn"))
    ]
    return [*ended, Run(ended[0].key, state=NOT_ENDED)]


def norms(runs):
    return [run.norm for run in runs]


def test_a_run_matches_any_of_several_values_and_a_run_without_a_record_matches_none(runs):
    assert norms(matching_runs(runs, {"norm": "bn"})) == ["bn"]
    assert norms(matching_runs(runs, {"norm": "ln,bn"})) == ["ln", "bn"]
    assert matching_runs(runs, {"norm": "bn", "seed": "0"}) == []
    assert matching_runs(runs, {}) == runs
    with pytest.raises(UserError, match="no_such_key"):
        matching_runs(runs, {"no_such_key": "1"})


def test_values_that_no_run_has_are_reported_with_a_suggestion_or_the_existing_values(runs):
    assert unmatched_values(runs, {"norm": "ln,bn"}) == []
    (message,) = unmatched_values(runs, {"norm": "ln,layernorm"})
    assert message == (
        "--where norm=ln,layernorm: no run has layernorm. Did you mean --where norm=ln?"
    )
    text = none_matching(runs, [Path("runs")], {"seed": "7"})
    assert text == "no run that matches --where seed=7 in runs; seed is 0, 1"
