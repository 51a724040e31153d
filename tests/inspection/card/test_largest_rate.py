"""The search for the largest learning rate that trains."""

from normlab.inspection.card import largest_rate
from normlab.inspection.card.examined_norm import examined_norm


def test_the_rate_is_doubled_until_it_fails_or_halved_until_it_trains(tmp_path, monkeypatch):
    subject = examined_norm(["norm=bn"], tmp_path)

    def largest(limit):
        def trial(_, value):
            return largest_rate.RateTrial(value <= limit, 1.0, "")

        monkeypatch.setattr(largest_rate, "rate_trial", trial)
        return largest_rate.rate(subject)

    assert largest(0.005).values["largest"] == 0.004
    assert "0.008 does not" in largest(0.005).answer
    assert largest(0.0003).values["largest"] == 0.00025
    assert [row[0] for row in largest(0.0003).table.rows] == [0.00025, 0.0005, 0.001]
    assert largest(0.0).board == {"largest lr": "none"}
    assert largest(9.0).board == {"largest lr": "0.256+"}
