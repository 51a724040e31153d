"""The search for the largest learning rate that trains."""

from normlab.inspection.card import rate
from normlab.inspection.card.examined_norm import examined_norm
from tests.records.examples import record


def test_the_learning_rate_is_doubled_until_it_fails_or_halved_until_it_trains(
    tmp_path, monkeypatch
):
    subject = examined_norm(["norm=bn"], tmp_path)

    def largest(limit):
        def trial(_, value):
            return rate.RateTrial(value <= limit, 1.0, "")

        monkeypatch.setattr(rate, "rate_trial", trial)
        return rate.rate(subject)

    assert largest(0.005).values["largest"] == 0.004
    assert "0.008 does not" in largest(0.005).answer
    assert largest(0.0003).values["largest"] == 0.00025
    assert [row[0] for row in largest(0.0003).table.rows] == [0.00025, 0.0005, 0.001]
    assert largest(0.0).board == {"largest lr": "none"}
    assert largest(9.0).board == {"largest lr": "0.256+"}


def test_a_rate_trial_of_few_steps_does_not_beat_word_frequencies(tmp_path):
    subject = examined_norm(["norm=bn", "scale=smoke"], tmp_path)
    trial = rate.rate_trial(subject, 1e-3)
    assert not trial.trains and trial.ended == "no better than word frequencies"
    assert 2 < trial.training_loss < 10


def test_a_learning_rate_at_which_a_run_diverges_does_not_train(tmp_path, monkeypatch):
    diverged = record(status="diverged")
    monkeypatch.setattr(rate, "trained_record", lambda _: diverged)
    subject = examined_norm(["norm=bn", "scale=smoke"], tmp_path)
    assert rate.rate_trial(subject, 1.0) == (False, None, "diverged at step 100")
