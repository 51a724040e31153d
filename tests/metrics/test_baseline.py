"""When a score is clearly better than the untrained baseline: cases worked out by hand."""

import pytest

from normlab.metrics.baseline import against_baseline, at_baseline, clearly_beats, nats_needed
from normlab.records.record import Score
from tests.training.sink_runs import record


@pytest.mark.parametrize(
    ("name", "baseline", "values", "n", "clear"),
    [
        ("loss", 6.7, [5.6], None, True),
        ("loss", 6.7, [5.8], None, False),  # better by 0.9, but 1 nat is needed
        ("mlm_loss", 6.7, [5.6, 5.8], None, True),  # their mean decides
        ("nsp_loss", 0.693, [0.34], None, True),  # two classes: half of 0.693 is needed
        ("nsp_loss", 0.693, [0.36], None, False),
        ("nll", 1.085, [0.112], None, True),
        ("accuracy", 0.5, [0.53], None, True),
        ("accuracy", 0.5, [0.53], 1000, False),  # Wilson's interval begins at 0.499
        ("accuracy", 0.5, [0.53], 100_000, True),  # at 0.527
        ("bleu", 0.5, [0.9], None, False),
        ("bleu", 0.5, [1.1], None, True),
        ("bleu", 0.5, [1.1, 8.0], None, False),  # the interval over seeds contains the baseline
    ],
)
def test_a_score_is_clearly_better_only_if_it_beats_its_baseline_by_the_margin(
    name, baseline, values, n, clear
):
    higher = "accuracy" in name or name == "bleu"
    assert clearly_beats(baseline, values, name, higher_is_better=higher, n=n) == clear


def test_a_two_class_loss_must_be_below_half_of_its_baseline():
    runs = [record(scores={"test/loss": Score(0.6, False, 100)}, floors={"loss": 0.66})]
    assert at_baseline(runs, "test/loss")
    assert against_baseline(runs, "test/loss") == ("test/loss", 0.6, 0.66, False)
    assert nats_needed(0.66) == 0.33


@pytest.mark.parametrize("unit", ["steps", "tokens"])
@pytest.mark.parametrize("place", ["to_converge", "to/accuracy_0.4"])
def test_an_amount_of_training_is_judged_by_the_loss_of_the_same_runs(unit, place):
    score = f"valid/{unit}_{place}"
    scores = {score: Score(10.0, False, 5), "test/loss": Score(6.0, False, 100)}
    runs = [record(scores=scores, floors={"loss": 6.7})]
    assert against_baseline(runs, score) == ("test/loss", 6.0, 6.7, False)


def test_a_score_without_a_baseline_is_not_compared():
    runs = [record(scores={"test/loss": Score(0.6, False, 100)}, floors={})]
    assert not at_baseline(runs, "test/loss") and against_baseline(runs, "test/loss") is None
