"""Decides whether two runs form a pair, and whether runs are seeds of one `Experiment`.

A difference in scores has a single cause only if everything else is the same. Runs are paired by
seed, and the two runs of a pair share their data, number of processes and arithmetic. In claims,
and in comparisons of runs that no study planned, they also share their code. A study's table says
if the code of its pairs differs. Seeds may run on different machines, but both runs of a pair run
on the same kind, because bf16 and float32 round differently, as do the kernels of different
instruction sets.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from normlab.config.schema import NORM_KEYS, REPEATS
from normlab.errors import UserError
from normlab.records.code import same_code
from normlab.records.record import Parts, RunRecord, Score, arithmetic_of

ABSENT = "(absent)"
_DATA = ("source", "sizes", "checksums")


class PairRules(NamedTuple):
    """The rules for the two runs of a pair, in addition to equal data, processes and arithmetic.

    `may_differ` lists the dotted config keys that may differ (None for all). If it includes `task`,
    the data may also differ. With `training`, runs whose norm, placement or batch differs must be
    trained for the same length and tested in the same way.
    """

    precision: bool = True
    code: bool = True
    may_differ: tuple[str, ...] | None = None
    training: bool = False


PLANNED = PairRules(code=False)
"""Rules for the runs of a study. Its plan says what they share, and its table shows if code
differs.
"""
UNPLANNED = PairRules(training=True)
"""Rules for runs that no study planned."""


@dataclass(frozen=True)
class Pairing:
    """Runs of two sides, paired by seed.

    `reasons` says why the other common seeds are not pairs, and `alone` holds the seeds that only
    one side has.

    Tables, pages, `normlab compare`, claims and generated blocks all use this class to pair runs.
    The caller chooses the runs of each side: only finished runs in a table, but also diverged runs
    in a claim.
    """

    pairs: Mapping[int, tuple[RunRecord, RunRecord]]
    reasons: Mapping[int, str]
    alone: frozenset[int]

    @classmethod
    def of(
        cls,
        a: Iterable[RunRecord],
        b: Iterable[RunRecord],
        rules: PairRules,
        *,
        scores: Sequence[str] = (),
    ) -> "Pairing":
        """Pair two sides, each with one run per seed and a single way to compute each score."""
        first, second = ({record.seed: record for record in side} for side in (a, b))
        pairs: dict[int, tuple[RunRecord, RunRecord]] = {}
        reasons: dict[int, str] = {}
        for seed in sorted(first.keys() & second.keys()):
            both = first[seed], second[seed]
            reason = why_not_paired(*both, rules) or _scored_apart(*both, scores)
            if reason is None:
                pairs[seed] = both
            else:
                reasons[seed] = reason
        return cls(pairs, reasons, frozenset(first.keys() ^ second.keys()))

    def values(self, score: str) -> dict[int, tuple[float, float]]:
        """Return a score of both runs by seed, for pairs whose runs compute it in the same way."""
        scored = {
            seed: [value for run in both if (value := run.metric(score)) is not None]
            for seed, both in self.pairs.items()
            if _scored_apart(*both, (score,)) is None
        }
        return {n: (pair[0].value, pair[1].value) for n, pair in scored.items() if len(pair) == 2}

    def differences(self, score: str) -> dict[int, float]:
        """Return the difference `a - b` of a score, by seed."""
        return {seed: a - b for seed, (a, b) in self.values(score).items()}


def _scored_apart(a: RunRecord, b: RunRecord, scores: Sequence[str]) -> str | None:
    for name in scores:
        both = [run.scores[name] for run in (a, b) if name in run.scores]
        if len({(each.signature, each.higher_is_better) for each in both}) > 1:
            return f"different ways to compute {name}"
    return None


def why_not_paired(a: RunRecord, b: RunRecord, rules: PairRules) -> str | None:
    """Return why two runs of one seed may not be compared, or None if they may."""
    precision, code, may_differ, training = rules
    if "task" not in (may_differ or ()):
        for key in _DATA:
            if a.data.get(key) != b.data.get(key):
                return f"different data ({key})"
    if a.environment.get("world_size") != b.environment.get("world_size"):
        return "different numbers of processes"
    if code and not same_code(a.made_by, b.made_by):
        return "different code"
    kinds = arithmetic_of(a.environment), arithmetic_of(b.environment)
    if kinds[0] != kinds[1]:
        # If both configs set a precision and the two differ, the runs compare precisions.
        precisions = {record.config.get("precision", "auto") for record in (a, b)}
        compared = not precision or (len(precisions) == 2 and "auto" not in precisions)
        if not compared or (kinds[0][0], kinds[0][2]) != (kinds[1][0], kinds[1][2]):
            return f"different arithmetic ({'; '.join(map(' '.join, kinds))})"
    if may_differ is not None and (keys := settings(a.parts, b.parts, may_differ)):
        return f"different settings ({', '.join(keys)})"
    if training and (unequal := unequal_training(a.parts, b.parts)):
        return f"different lengths of training or tests ({', '.join(unequal)})"
    return None


# How configs differ -------------------------------------------------------------------------------


def spelled(key: str) -> tuple[str, ...]:
    """Return the dotted config keys that a key covers, such as the copy that a task has."""
    if key == "norm":
        return (*NORM_KEYS, "sites")  # the label `norm` covers all norms of a model
    dotted = key.rpartition("@")[2].replace("/", ".")
    return dotted, f"task.{dotted}"


ROW_KEYS = tuple(
    f"{name}." for key in ("norm", "placement", "batch_size", "max_tokens") for name in spelled(key)
)
"""The config keys from which the name of a row is made."""
_TRAINING = (
    "budget.",
    "task.test_search.",
    "validate.test.",
    "validate.average.",
    "validate.limit.",
)
"""The config keys that say how long a run is trained and how it is tested."""


def unequal_training(a: Parts, b: Parts) -> dict[str, list[Any]]:
    """Return the keys for training length and tests in which two rows differ, with both values.

    The result is empty for experiments of one row (with the same norm, placement and batch),
    because they may differ in these keys.
    """
    differing = varying([a, b])
    if not any(f"{key}.".startswith(ROW_KEYS) for key in differing):
        return {}
    return {key: both for key, both in differing.items() if f"{key}.".startswith(_TRAINING)}


def settings(a: Parts, b: Parts, may_differ: tuple[str, ...]) -> list[str]:
    """Return the keys that differ but should not.

    A key may also differ if it repeats a key that may differ and has the same values: for example,
    `schedule.lr` repeats `optim.lr` (see `REPEATS`).
    """
    pairs = varying([a, b])
    below = tuple(f"{key}." for key in may_differ)
    allowed = [key for key in pairs if key in may_differ or key.startswith(below)]
    sources = {key: source for key, source in REPEATS.items() if source in allowed}
    repeated = [key for key, source in sources.items() if pairs.get(key) == pairs[source]]
    return [key for key in pairs if key not in allowed and key not in repeated]


def varying(experiments: Sequence[Parts]) -> dict[str, list[Any]]:
    """Return the dotted keys in which experiments differ, each with its value in every experiment.

    If an experiment does not have a key, its value is `ABSENT`.
    """
    keys = sorted({k for each in experiments for k, _ in each.items() ^ experiments[0].items()})
    return {k: [json.loads(each[k]) if k in each else ABSENT for each in experiments] for k in keys}


# The seeds of one experiment ----------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """The mean, standard deviation and count of a value over several seeds.

    The standard deviation has n - 1 in its denominator. It is None for a single seed, or if the
    mean is not finite.
    """

    mean: float
    sd: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Summary":
        n, mean = len(values), statistics.fmean(values)
        if n < 2 or not math.isfinite(mean):
            return cls(mean, None, n)
        squares = math.fsum((value - mean) * (value - mean) for value in values)
        return cls(mean, math.sqrt(squares / (n - 1)), n)


@dataclass(frozen=True)
class Experiment:
    """The runs of one experiment, one per seed, sorted by seed.

    Only finished seeds have scores. `outcome` says how many of all seeds finished, because silently
    dropping diverged seeds would bias a comparison.
    """

    records: tuple[RunRecord, ...]

    @classmethod
    def of(cls, records: Iterable[RunRecord]) -> "Experiment":
        """Join the seeds of one experiment, or raise UserError with the reason if they differ."""
        ordered = tuple(sorted(records, key=lambda record: record.seed))
        if (reason := why_not_one_experiment(ordered)) is not None:
            raise UserError(reason)
        return cls(ordered)

    @property
    def parts(self) -> Parts:
        return self.records[0].parts

    @property
    def outcome(self) -> str:
        """`finished 3/3` if all seeds finished, else the number that did not: `diverged 2/5`."""
        counts = Counter(record.outcome.status for record in self.records)
        others = sorted(counts.keys() - {"finished"}) or ["finished"]
        return ", ".join(f"{status} {counts[status]}/{len(self.records)}" for status in others)

    def scores(self, name: str) -> dict[int, Score]:
        """Return a score for each seed. Raise UserError if seeds were scored in different ways."""
        if (reason := why_not_one_score(self.records, name)) is not None:
            raise UserError(reason)
        return _measured(self.records, name)

    def values(self, name: str) -> dict[int, float]:
        return {seed: score.value for seed, score in self.scores(name).items()}

    def signature(self, name: str) -> str | None:
        """Return the signature that says how a score was computed, or None if there is none."""
        return next((score.signature for score in self.scores(name).values()), None)


def why_not_one_experiment(records: Sequence[RunRecord]) -> str | None:
    """Return why runs are not the seeds of one experiment, or None if they are.

    `records` must be sorted by seed.
    """
    for before, after in pairwise(records):
        if before.seed == after.seed:
            return f"{before.run_id} has seed {after.seed} twice; pass each run only once"
        if before.fingerprint != after.fingerprint:
            keys = ", ".join(settings(before.parts, after.parts, ()))
            return f"{before.run_id} and {after.run_id} differ in {keys}"
        for key, value in _shared(before).items():
            if value != (other := _shared(after)[key]):
                return (
                    f"{before.run_id} and {after.run_id} are not comparable: {key} is "
                    f"{value!r} and {other!r}; compare them separately"
                )
    return None


def why_not_one_score(records: Sequence[RunRecord], name: str) -> str | None:
    """Return why a score of finished runs cannot be averaged, or None if it can.

    It can if it was computed in the same way in all runs.
    """
    scores = _measured(records, name).values()
    ways = {(score.signature, score.higher_is_better) for score in scores}
    if len(ways) < 2:
        return None
    return (
        f"{records[0].run_id}: {name} was computed in several ways "
        f"({' / '.join(sorted(str(signature) for signature, _ in ways))}); "
        "re-score the runs with `normlab eval`"
    )


def _measured(records: Sequence[RunRecord], name: str) -> dict[int, Score]:
    every = {record.seed: record.metric(name) for record in records if record.finished}
    return {seed: score for seed, score in every.items() if score is not None}


def _shared(record: RunRecord) -> dict[str, object]:
    """Return the values that the seeds of an experiment must share in addition to their config."""
    data = {f"data.{key}": record.data.get(key) for key in _DATA}
    keys = ("precision", "world_size")
    run = {f"environment.{key}": record.environment.get(key) for key in keys}
    return {"params": record.params, **data, **run}
