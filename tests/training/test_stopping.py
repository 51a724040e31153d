"""The budget of a run, and the history of its validations."""

import math
import signal

import pytest

from normlab.records.record import Score
from normlab.training.stopping import Budget, Interrupts, Validation, Validations


def seen(values, *, name="loss", higher=False) -> Validations:
    """Return validations with these values, one per 10 steps of 100 tokens."""
    found = Validations()
    for number, value in enumerate(values, 1):
        scores = {f"valid/{name}": Score(value, higher, 7), "valid/other": Score(1.0, True, 7)}
        found.history.append(Validation(10 * number, 1000 * number, scores))
    return found


def steps_to(targets, values, *, lost=False, **how):
    (name,) = targets
    found = seen(values, name=name, **how).reached(targets, lost=lost)
    steps = [found[f"valid/steps_to/{name}_{value:g}"].value for value in targets[name]]
    tokens = [found[f"valid/tokens_to/{name}_{value:g}"].value for value in targets[name]]
    assert tokens == [100 * step for step in steps]
    assert all(score.n == len(values) for score in found.values())
    return steps


@pytest.mark.parametrize(
    ("targets", "values", "higher", "steps"),
    [
        ([3.0, 2.5, 1.0], [4.0, 2.9, 2.5, 2.0], False, [20, 30, math.inf]),
        ([3.0], [2.9, 3.1, 2.8, 2.7], False, [30]),  # lost and regained
        ([3.0], [2.9, 2.8, 3.1], False, [math.inf]),
        ([0.5, 0.7], [0.4, 0.5, 0.6, 0.8], True, [20, 40]),
        ([1.0], [1.0, math.nan], False, [math.inf]),
        ([1.0], [1.0, math.nan], True, [math.inf]),
        ([1.5], [], False, [math.inf]),
    ],
)
def test_a_target_is_reached_when_the_score_first_meets_it_for_the_rest_of_the_run(
    targets, values, higher, steps
):
    assert steps_to({"loss": targets}, values, higher=higher) == steps
    assert steps_to({"loss": targets}, values, higher=higher, lost=True) == [math.inf] * len(steps)


@pytest.mark.parametrize(("higher", "step"), [(True, 30), (False, 20)])
def test_the_first_of_several_equal_validations_is_best_and_nan_is_worst(higher, step):
    values = (math.nan, 1.0, 5.0, 5.0, math.nan, 1.0)
    found = seen(values, higher=higher)
    assert found.best("loss").step == step
    assert found.since_best("loss") == 6 - step / 10
    assert Validations().since_best("loss") == 0


def test_an_unknown_score_raises_an_error_that_lists_the_scores():
    with pytest.raises(ValueError, match="blue is not a score of this task; choose from loss"):
        seen([1.0]).best("blue")


def test_the_state_restores_all_validations():
    found, again = seen([math.nan, 1.0, math.inf]), Validations()
    again.load_state_dict(found.state_dict())
    assert str(again.history) == str(found.history)


FLAT = [4.0, 3.0, 2.019, 2.01, 2.005, 2.004, 2.003, 2.002, 2.001, 2.0]


@pytest.mark.parametrize(
    ("losses", "steps"),
    [
        (FLAT, 30),
        ([2.021 if loss == 2.019 else loss for loss in FLAT], 40),  # 1.05 % above the last
        ([*FLAT[:7], 2.02, 2.01, 2.0], math.inf),  # the last fifth gained 1 %
        ([*FLAT[:7], 2.0199, 2.01, 2.0], 30),  # a little less than 1 %
        ([3.0, 2.0, 1.0, 1.0, 1.5, 1.9, 2.0, 2.0, 2.0, 2.0], 20),  # a loss that rises gains nothing
        ([2.0] * 5, 10),
        ([2.0], math.inf),  # no validation before the last fifth
        ([], math.inf),
        ([*FLAT[:9], math.nan], math.inf),
        ([*FLAT[:9], math.inf], math.inf),
        ([math.nan, *FLAT[1:]], 30),
    ],
)
def test_a_run_converges_within_one_percent_of_a_settled_loss(losses, steps):
    expected = {
        "valid/steps_to_converge": Score(steps, False, len(losses)),
        "valid/tokens_to_converge": Score(100 * steps, False, len(losses)),
    }
    assert seen(losses).converged(lost=False) == expected
    never = {name: Score(math.inf, False, len(losses)) for name in expected}
    assert seen(losses).converged(lost=True) == never
    assert {s.n for s in seen(losses, name="bleu").converged(lost=False).values()} == {0}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGXCPU"])
def test_a_signal_asks_a_run_to_stop_unless_it_was_already_ignored(name):
    number = signal.Signals[name]
    with Interrupts() as interrupts:
        signal.raise_signal(number)
    assert interrupts.received == number
    if name == "SIGTERM":
        return
    former = signal.signal(number, signal.SIG_IGN)  # as nohup does
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(number)
        assert interrupts.received is None
    finally:
        signal.signal(number, former)


FAR = {"steps": 0, "epochs": 0.0, "tokens": 0, "seconds": 0.0}


@pytest.mark.parametrize(
    ("limit", "before", "at"),
    [
        ({"steps": 10}, {"steps": 9}, {"steps": 10}),
        ({"epochs": 1.5}, {"epochs": 1.49}, {"epochs": 1.5}),
        ({"tokens": 1000}, {"tokens": 999}, {"tokens": 1003}),
        ({"minutes": 2.0}, {"seconds": 119.9}, {"seconds": 120.0}),
    ],
)
def test_the_budget_reports_a_limit_exactly_when_it_is_reached(limit: dict, before: dict, at: dict):
    budget = Budget(**limit)
    assert budget.spent(**{**FAR, **before}) is None
    assert budget.spent(**{**FAR, **at}) == next(iter(limit))


def test_the_first_limit_that_is_reached_ends_a_run():
    budget = Budget(steps=100, tokens=50)
    assert budget.spent(**{**FAR, "steps": 99, "tokens": 50}) == "tokens"
    assert budget.spent(**{**FAR, "steps": 100, "tokens": 49}) == "steps"
