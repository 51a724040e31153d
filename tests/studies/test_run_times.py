"""The finished runs from which the time of a run is estimated."""

from msgspec.structs import replace

from normlab.studies.run_times import ESTIMATE, OTHER_DEVICE, timed, timed_anywhere
from tests.records.examples import record


def runs(kind, *seconds):
    """Return finished runs on a kind of device that took these times."""
    made = record(environment={"device_type": kind, "device": kind.upper()})
    return [replace(made, budget=replace(made.budget, wall_seconds=each)) for each in seconds]


def test_your_own_runs_on_the_same_kind_of_device_are_preferred():
    published = [*runs("cuda", 10.0), *runs("cpu", 60.0, 90.0)]
    assert timed("cpu", runs("cpu", 20.0), published, minutes=5.0).seconds == 20.0
    assert timed("cuda", runs("cpu", 20.0), published, minutes=5.0).seconds == 10.0
    other = timed("cuda", [], runs("cpu", 60.0, 90.0), minutes=5.0)
    assert (other.seconds, other.mark, other.machines) == (
        75.0,
        OTHER_DEVICE,
        ["published on CPU"] * 2,
    )
    assert timed("cpu", [], [], minutes=5.0).mark == ESTIMATE


def test_the_time_of_published_runs_is_the_median_on_the_most_frequent_kind_of_device():
    published = [*runs("cuda", 10.0), *runs("cpu", 60.0, 90.0, 600.0)]
    assert timed_anywhere(published, minutes=5.0).seconds == 90.0
    assert timed_anywhere([], minutes=5.0).seconds == 300.0
