"""The time that a study's run takes, from finished runs on some kind of device."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from normlab.records.record import RunRecord

OTHER_DEVICE = "*"
ESTIMATE = "~"


class TimedRuns(NamedTuple):
    """Finished runs of one kind of device, from which times are estimated.

    `whose` is "own" or "published". `other` is set if they used a different kind of device than the
    remaining runs will use. If there are no runs, `minutes` is the estimate in the study's file.
    """

    records: Sequence[RunRecord]
    whose: str = ""
    other: bool = False
    minutes: float = 0.0

    @property
    def seconds(self) -> float:
        times = [record.budget.wall_seconds for record in self.records]
        return median(times) if times else 60 * self.minutes

    @property
    def mark(self) -> str:
        """The mark of an estimate that is not from runs on this kind of device, or ""."""
        return ESTIMATE if not self.records else OTHER_DEVICE if self.other else ""

    @property
    def machines(self) -> list[str]:
        environments = (record.environment for record in self.records)
        devices = (machine.get("device", "an unknown machine") for machine in environments)
        return [f"{self.whose} on {device}" for device in devices]


def timed(
    device: str, ours: Sequence[RunRecord], published: Sequence[RunRecord], *, minutes: float
) -> TimedRuns:
    """Return the finished runs that best predict how long a run takes on a device, CPU or GPU.

    Runs on this kind of device are preferred, your own before published ones. If there are none,
    the runs on the most frequent other kind of device are returned. `minutes` is the estimate in
    the study's file.
    """
    sources = {"own": ours, "published": published}
    for whose, records in sources.items():
        if same := [each for each in records if each.environment.get("device_type") == device]:
            return TimedRuns(same, whose)
    for whose, records in sources.items():
        if records:
            return TimedRuns(_of_most_frequent_kind(records), whose, other=True)
    return TimedRuns((), minutes=minutes)


def timed_anywhere(published: Sequence[RunRecord], *, minutes: float) -> TimedRuns:
    """Return the published runs on the most frequent kind of device.

    They give the same time on every machine; `timed` prefers runs on this one.
    """
    return TimedRuns(_of_most_frequent_kind(published), "published", minutes=minutes)


def _of_most_frequent_kind(records: Sequence[RunRecord]) -> list[RunRecord]:
    kinds = Counter(each.environment.get("device_type") for each in records)
    return [
        each
        for (kind, _) in kinds.most_common(1)
        for each in records
        if each.environment.get("device_type") == kind
    ]
