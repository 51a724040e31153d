"""The seeds of one experiment, joined into one table row.

A score is averaged over the finished seeds, and every row says how many of all seeds finished:
dropping diverged seeds silently would bias the comparison. Runs with the same fingerprint but
different data, precision or number of processes are not averaged.
"""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from normlab.records.record import Parts, RunRecord, Score


@dataclass(frozen=True)
class Summary:
    """A value over seeds: mean, standard deviation (n - 1; None for one seed) and n."""

    mean: float
    sd: float | None
    n: int


@dataclass(frozen=True)
class Cell:
    """The runs of one experiment, one per seed, sorted by seed."""

    records: tuple[RunRecord, ...]

    @classmethod
    def of(cls, records: Iterable[RunRecord]) -> "Cell":
        """Join the seeds of one experiment; raises ValueError naming what is not comparable."""
        ordered = tuple(sorted(records, key=lambda record: record.seed))
        first = ordered[0]
        assert all(record.fingerprint == first.fingerprint for record in ordered)
        for before, after in itertools.pairwise(ordered):
            if before.seed == after.seed:
                raise ValueError(
                    f"{first.run_id}: seed {after.seed} is given twice; name each run once"
                )
        for record in ordered[1:]:
            for (key, own), (_, other) in zip(_shared(first), _shared(record), strict=True):
                if own != other:
                    raise ValueError(
                        f"{first.run_id} and {record.run_id} are not comparable: {key} is "
                        f"{own!r} and {other!r}; compare them one at a time"
                    )
        return cls(ordered)

    @property
    def config(self) -> dict[str, Any]:
        return self.records[0].config

    @property
    def parts(self) -> Parts:
        return self.records[0].parts

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(record.seed for record in self.records)

    @property
    def outcome(self) -> str:
        """Return `finished 3/3` if all seeds finished, else counts of the rest: `diverged 2/5`."""
        counts = Counter(record.outcome.status for record in self.records)
        others = sorted(counts.keys() - {"finished"}) or ["finished"]
        return ", ".join(f"{status} {counts[status]}/{len(self.records)}" for status in others)

    def choice(self, group: str) -> str | None:
        return self.records[0].choice(group)

    def score(self, name: str) -> Summary | None:
        """Summarise a score over the finished seeds; None if none of them has it.

        Raises ValueError if the seeds were not scored in the same way.
        """
        scores = self._scores(name)
        ways = {(score.signature, score.higher_is_better) for score in scores}
        if len(ways) > 1:
            raise ValueError(
                f"{self.records[0].run_id}: {name} was computed in several ways "
                f"({' / '.join(sorted(str(signature) for signature, _ in ways))}); "
                "score the runs again with `normlab eval`"
            )
        return summarise([score.value for score in scores])

    def signature(self, name: str) -> str | None:
        """Return the signature that says how a score was computed; None if there is none."""
        scores = self._scores(name)
        return scores[0].signature if scores else None

    def tokens_per_second(self) -> Summary | None:
        """Summarise the training speed over all seeds, in target tokens per second."""
        return summarise([record.budget.tokens_per_second for record in self.records])

    def _scores(self, name: str) -> list[Score]:
        found = (record.figure(name) for record in self.records if record.finished)
        return [score for score in found if score is not None]


def _shared(record: RunRecord) -> list[tuple[str, object]]:
    """Return what the seeds of an experiment must share in addition to their config."""
    data = [(f"data.{key}", record.data.get(key)) for key in ("source", "sizes", "checksums")]
    keys = ("precision", "world_size")
    machine = [(f"environment.{key}", record.environment.get(key)) for key in keys]
    return [("params", record.params), *data, *machine]


def summarise(values: Sequence[float]) -> Summary | None:
    """Return mean, standard deviation (n - 1) and n; None for no values.

    A mean that is not finite has no deviation: the steps to a target that was never reached are
    infinite.
    """
    if not values:
        return None
    mean = statistics.fmean(values)
    spread = len(values) > 1 and math.isfinite(mean)
    return Summary(mean, deviation(values, mean) if spread else None, len(values))


def deviation(values: Sequence[float], mean: float) -> float:
    """Return the standard deviation (n - 1) of at least two values about their mean."""
    squares = math.fsum((value - mean) * (value - mean) for value in values)
    return math.sqrt(squares / (len(values) - 1))


def group(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group records by fingerprint, in order of first appearance."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.fingerprint, []).append(record)
    return groups
