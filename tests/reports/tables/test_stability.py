"""How the seeds of a row trained, in words."""

from msgspec.structs import replace

from normlab.records.record import Outcome
from normlab.records.store import SPIKE_COUNT
from normlab.reports.tables.stability import ended_in_brief
from tests.reports.handmade import BLEU, build, made, row, run, study


def seeds(*outcomes, spikes=None):
    """Return the row of seeds that ended so."""
    stability = {} if spikes is None else {SPIKE_COUNT: spikes}
    runs = [
        run(
            replace(made("ln", n, {BLEU: 1.0}), outcome=Outcome(outcome, 9), stability=stability),
            "ln",
            n,
        )
        for n, outcome in enumerate(outcomes, 1)
    ]
    return row(build(study(), runs), "ln")


def test_divergences_and_spikes_are_counted_in_full_and_in_brief():
    whole = seeds("finished", "finished", spikes=0.0)
    assert whole.stability == "finished 2/2; diverged 0; median spikes 0"
    assert ended_in_brief(whole) == "2/2"
    mixed = seeds("finished", "diverged", spikes=4.0)
    assert mixed.stability == "diverged 1/2; median spikes 4"
    assert ended_in_brief(mixed) == "1/2, 1 diverged, median spikes 4"


def test_a_row_without_records_shows_its_state_and_uncounted_spikes_are_reported():
    assert ended_in_brief(row(build(study(), [run(None, "ln")]), "ln")) == "not run"
    assert ended_in_brief(seeds("finished", spikes=3.0)) == "1/1, spikes 3"
    assert seeds("finished").stability.endswith("; spikes not counted")
