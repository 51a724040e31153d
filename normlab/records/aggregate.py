"""The seeds of one experiment, joined to one row of a table.

A score is averaged over the seeds that finished, and every row says how many of all seeds finished:
dropping diverged seeds silently would bias the comparison. Runs that share a fingerprint but not
their data, precision or number of processes are not averaged at all.
"""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from normlab.records.labels import norm_label
from normlab.records.record import Parts, RunRecord, Score

_MUST_AGREE: tuple[tuple[str, Callable[[RunRecord], object]], ...] = (
    ("params", lambda record: record.params),
    ("data.source", lambda record: record.data.get("source")),
    ("data.sizes", lambda record: record.data.get("sizes")),
    ("data.checksums", lambda record: record.data.get("checksums")),
    ("environment.precision", lambda record: record.environment.get("precision")),
    ("environment.world_size", lambda record: record.environment.get("world_size")),
)


@dataclass(frozen=True)
class Summary:
    """A value over seeds: its mean, its standard deviation (n - 1; None for one seed), its n."""

    mean: float
    sd: float | None
    n: int


@dataclass(frozen=True)
class Cell:
    """The runs of one experiment, one per seed, in the order of their seeds."""

    fingerprint: str
    records: tuple[RunRecord, ...]

    @classmethod
    def of(cls, records: Iterable[RunRecord]) -> "Cell":
        """Join the seeds of one experiment; raises `ValueError` naming what is not comparable."""
        ordered = tuple(sorted(records, key=lambda record: record.seed))
        assert ordered, "a cell has at least one record"
        first = ordered[0]
        mark = first.fingerprint
        assert all(record.fingerprint == mark for record in ordered)
        for before, after in itertools.pairwise(ordered):
            if before.seed == after.seed:
                raise ValueError(
                    f"{first.run_id}: seed {after.seed} is given twice; name each run once"
                )
        for record in ordered[1:]:
            for key, get in _MUST_AGREE:
                if get(record) != get(first):
                    raise ValueError(
                        f"{first.run_id} and {record.run_id} are not comparable: {key} is "
                        f"{get(first)!r} and {get(record)!r}; run both again in the same way, "
                        "or compare them one at a time"
                    )
        return cls(mark, ordered)

    @property
    def config(self) -> dict[str, Any]:
        """Return the config, that of the first seed."""
        return self.records[0].config

    @property
    def parts(self) -> Parts:
        """Return what makes the experiment."""
        return self.records[0].parts

    @property
    def norm(self) -> str:
        """Return the label of the norms, such as `bn` or `bn+ln`."""
        return norm_label(self.config.get("choices", {}))

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds of all runs, finished or not."""
        return tuple(record.seed for record in self.records)

    @property
    def outcome(self) -> str:
        """Say how the seeds ended: `finished 3/3`, or how the others did, `diverged 2/5`."""
        total = len(self.records)
        counts = Counter(record.outcome.status for record in self.records)
        if counts["finished"] == total:
            return f"finished {total}/{total}"
        others = sorted(status for status in counts if status != "finished")
        return ", ".join(f"{status} {counts[status]}/{total}" for status in others)

    def choice(self, group: str) -> str | None:
        """Return the option chosen in a config group, or None where none was."""
        return self.records[0].choice(group)

    def score(self, name: str) -> Summary | None:
        """Summarise a score over the finished seeds, or return None where none has it.

        Raises `ValueError` where the seeds were not scored in the same way.
        """
        scores = self._scores(name)
        signatures = {(score.signature, score.higher_is_better) for score in scores}
        if len(signatures) > 1:
            raise ValueError(
                f"{self.records[0].run_id}: {name} was computed in several ways "
                f"({' / '.join(sorted(str(signature) for signature, _ in signatures))}); "
                "score the runs again with `normlab eval`"
            )
        return summarise([score.value for score in scores])

    def signature(self, name: str) -> str | None:
        """Return how a score was computed, as far as it says."""
        scores = self._scores(name)
        return scores[0].signature if scores else None

    def stability(self, name: str) -> Summary | None:
        """Summarise a value of a probe over all seeds that have it, diverged ones included."""
        return summarise([r.stability[name] for r in self.records if name in r.stability])

    def tokens_per_second(self) -> Summary | None:
        """Summarise the training speed over all seeds, in target tokens per second."""
        return summarise([record.budget.tokens_per_second for record in self.records])

    def _scores(self, name: str) -> list[Score]:
        found = (record.figure(name) for record in self.records if record.finished)
        return [score for score in found if score is not None]


def summarise(values: Sequence[float]) -> Summary | None:
    """Return mean, standard deviation (n - 1) and n, or None for no values.

    A value that is not finite, such as the steps to a target that was never reached, makes the mean
    what it is and leaves no deviation.
    """
    if not values:
        return None
    mean = statistics.fmean(values)
    if len(values) == 1 or not math.isfinite(mean):
        return Summary(mean, None, len(values))
    return Summary(mean, deviation(values, mean), len(values))


def deviation(values: Sequence[float], mean: float) -> float:
    """Return the standard deviation (n - 1) of at least two values about their mean.

    Unlike `statistics.stdev` it has no exact fractions, which take a third of the time of a large
    table.
    """
    squares = math.fsum((value - mean) * (value - mean) for value in values)
    return math.sqrt(squares / (len(values) - 1))


def group(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Sort records by fingerprint, in the order in which each first appears."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.fingerprint, []).append(record)
    return groups


def cells(records: Iterable[RunRecord]) -> list[Cell]:
    """Join records to cells; raises `ValueError` naming the first runs not comparable."""
    return [Cell.of(members) for members in group(records).values()]
