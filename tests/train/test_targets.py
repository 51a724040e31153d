"""Targets: since when a score has been reached, in either direction, and what was never reached."""

import math
from dataclasses import asdict

import pytest

from normlab.records.record import Score
from normlab.train.stopping import Convergence, Targets


def seen(values, rows, *, higher=False, name="loss"):
    """Return targets after validations, one every 10 steps of 100 tokens each."""
    targets = Targets(values)
    for number, value in enumerate(rows, 1):
        scores = {f"valid/{name}": Score(value, higher, 7)}
        targets.see(scores, step=10 * number, tokens=1000 * number)
    return targets


def steps(targets, *, lost=False):
    scores = targets.scores(lost=lost)
    return {
        name.removeprefix("valid/steps_to/"): score.value
        for name, score in scores.items()
        if "steps_to" in name
    }


def test_a_target_counts_from_when_it_was_reached():
    targets = seen({"loss": [3.0, 2.5, 1.0]}, [4.0, 2.9, 2.5, 2.0])
    assert targets.scores(lost=False) == {
        "valid/steps_to/loss_3": Score(20.0, False, 4),
        "valid/steps_to/loss_2.5": Score(30.0, False, 4),
        "valid/steps_to/loss_1": Score(math.inf, False, 4),
        "valid/tokens_to/loss_3": Score(2000.0, False, 4),
        "valid/tokens_to/loss_2.5": Score(3000.0, False, 4),
        "valid/tokens_to/loss_1": Score(math.inf, False, 4),
    }


def test_a_target_that_is_lost_counts_from_when_it_is_reached_again():
    assert steps(seen({"loss": [3.0]}, [2.9, 3.1, 2.8, 2.7])) == {"loss_3": 30}
    assert steps(seen({"loss": [3.0]}, [2.9, 2.8, 3.1])) == {"loss_3": math.inf}


def test_a_score_that_is_better_when_higher():
    targets = seen({"accuracy": [0.5, 0.7]}, [0.4, 0.5, 0.6, 0.8], higher=True, name="accuracy")
    assert steps(targets) == {"accuracy_0.5": 20, "accuracy_0.7": 40}


@pytest.mark.parametrize("higher", [False, True])
def test_a_score_that_is_no_number_reaches_nothing(higher):
    rows = [1.0, math.nan]
    assert steps(seen({"loss": [1.0]}, rows, higher=higher)) == {"loss_1": math.inf}


def test_a_run_that_diverged_has_reached_nothing():
    targets = seen({"loss": [3.0]}, [2.0])
    assert steps(targets) == {"loss_3": 10}
    assert steps(targets, lost=True) == {"loss_3": math.inf}
    assert {score.value for score in targets.scores(lost=True).values()} == {math.inf}


def test_before_a_validation_nothing_is_reached():
    assert Targets({"loss": [1.5]}).scores(lost=False) == {
        "valid/steps_to/loss_1.5": Score(math.inf, False, 0),
        "valid/tokens_to/loss_1.5": Score(math.inf, False, 0),
    }
    assert Targets({}).scores(lost=False) == {}


def test_targets_go_on_from_their_state():
    targets = seen({"loss": [3.0, 1.0]}, [2.0])
    again = Targets(**asdict(targets))
    for each in (targets, again):
        each.see({"valid/loss": Score(1.0, False, 7)}, step=20, tokens=2000)
    assert again == targets
    assert steps(again) == {"loss_3": 10, "loss_1": 20}


def test_a_target_that_is_no_score_is_named():
    scores = {"valid/loss": Score(1.0, False, 1), "valid/bleu": Score(1.0, True, 1)}
    with pytest.raises(ValueError, match=r"set for blue, .* it has bleu, loss: .*observe\.targets"):
        Targets({"blue": [30.0]}).see(scores, step=1, tokens=1)


# --- steps to converge ---


def converged(losses, *, every=10, lost=False):
    """Return steps and tokens to converge of validations every so many steps of 100 tokens."""
    curve = Convergence()
    for number, value in enumerate(losses, 1):
        scores = {"valid/loss": Score(value, False, 7), "valid/bleu": Score(1.0, True, 7)}
        curve.see(scores, step=every * number, tokens=100 * every * number)
    scores = curve.scores(lost=lost)
    assert {score.n for score in scores.values()} == {len(losses)}
    assert not any(score.higher_is_better for score in scores.values())
    return scores["valid/steps_to_converge"].value, scores["valid/tokens_to_converge"].value


FLAT = [4.0, 3.0, 2.019, 2.01, 2.005, 2.004, 2.003, 2.002, 2.001, 2.0]


@pytest.mark.parametrize(
    ("losses", "steps"),
    [
        (FLAT, 30),
        ([2.021 if loss == 2.019 else loss for loss in FLAT], 40),  # 1.05 % above the last
        ([*FLAT[:7], 2.02, 2.01, 2.0], math.inf),  # the last fifth gained 1 %
        ([*FLAT[:7], 2.0199, 2.01, 2.0], 30),  # and a little less
        ([3.0, 2.0, 1.0, 1.0, 1.5, 1.9, 2.0, 2.0, 2.0, 2.0], 20),  # a loss that rises gains nothing
        ([2.0] * 5, 10),
        ([2.0], math.inf),  # nothing is known of the part before
        ([], math.inf),
        ([*FLAT[:9], math.nan], math.inf),
        ([*FLAT[:9], math.inf], math.inf),
        ([math.nan, *FLAT[1:]], 30),
    ],
)
def test_converged_is_within_one_percent_of_a_loss_that_has_settled(losses, steps):
    assert converged(losses) == (steps, 100 * steps)


def test_a_run_that_diverged_has_not_converged():
    assert converged(FLAT, lost=True) == (math.inf, math.inf)


def test_a_task_without_a_loss_has_not_converged():
    curve = Convergence()
    curve.see({"valid/bleu": Score(1.0, True, 7)}, step=1, tokens=1)
    assert curve.scores(lost=False)["valid/steps_to_converge"] == Score(math.inf, False, 0)


def test_convergence_goes_on_from_its_state():
    curve = Convergence()
    for step in (1, 2, 3):
        curve.see({"valid/loss": Score(1.0, False, 7)}, step=step, tokens=step)
    assert Convergence(**asdict(curve)) == curve
