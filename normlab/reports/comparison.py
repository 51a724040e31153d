"""Which rows may be compared, over which seeds, what their difference is, and which is the best.

The tables of studies and `normlab compare` share these rules. Seeds are paired where both runs have
the same data, number of processes and arithmetic (device, precision, instruction set), unless the
precision is what is compared; `compare` also asks for the same code. Where a seed of a row
diverged, the others are not a fair sample, and nothing is compared. The best of a column is Holm's
(1979) answer over all pairs of rows at one point, from five seeds on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from normlab.metrics.spread import Interval, at_baseline, holm, learned, p_value, paired_interval
from normlab.records.aggregate import Cell
from normlab.records.pairs import same_code, settings, spelled, why_not_paired

CONFIDENCE = 0.95
SEEDS_TO_DECIDE = 5
# What names a row, by the keys of the config.
_NAMED = tuple(
    f"{name}."
    for key in ("norm", "placement", "batch_size", "max_tokens", "accumulate")
    for name in spelled(key)
)
# How long a run trains, and how it is tested.
_FIXED = ("budget", "task.test_search", "validate.test", "validate.average")


@dataclass(frozen=True)
class Rules:
    """What two runs of one seed must share beyond data, processes, device and instruction set."""

    precision: bool = True
    code: bool = False


STUDY = Rules()
COMPARE = Rules(code=True)


@dataclass(frozen=True)
class Difference:
    """The mean of `row - baseline` over the seeds of both; `interval` needs two pairs.

    Without a `mean`, `reason` says why. `left_out` has the seeds of both that are no pair, by what
    their two runs do not share.
    """

    mean: float | None = None
    interval: Interval | None = None
    pairs: tuple[int, ...] = ()
    reason: str | None = None
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict[str, list[int]])

    @property
    def p(self) -> float | None:
        """Return the p value of no difference, by Student's t test."""
        return None if self.interval is None else p_value(self.interval)


def difference(row: Cell, baseline: Cell, score: str, *, rules: Rules = STUDY) -> Difference:
    """Compare two rows in a score, over the seeds whose two runs are a pair."""
    seeds, left_out = pairs(row, baseline, rules=rules)
    left, right = (
        {seed: value for seed, value in values(cell, score).items() if seed in seeds}
        for cell in (row, baseline)
    )
    common = sorted(left.keys() & right.keys())
    reason = obstacle(row, baseline, rules=rules)
    if reason is None and not common:
        reason = f"no {score} on {'both sides' if left or right else 'either side'}"
    if reason is None and row.signature(score) != baseline.signature(score):
        reason = f"{score} was scored in different ways"
    if reason is None and not all(math.isfinite(side[n]) for side in (left, right) for n in common):
        reason = f"{score} is not finite in every seed"
    if reason is not None:
        return Difference(reason=reason)
    interval = paired_interval(left, right, confidence=CONFIDENCE) if len(common) > 1 else None
    mean = math.fsum(left[seed] - right[seed] for seed in common) / len(common)
    return Difference(mean, interval, tuple(common), left_out=left_out)


def pairs(a: Cell, b: Cell, *, rules: Rules = STUDY) -> tuple[list[int], dict[str, list[int]]]:
    """Return the seeds whose two finished runs are a pair, and the others by the reason."""
    others = {record.seed: record for record in b.records if record.finished}
    found: list[int] = []
    left_out: dict[str, list[int]] = {}
    for record in a.records:
        if record.finished and record.seed in others:
            other = others[record.seed]
            reason = why_not_paired(record, other, precision=rules.precision, code=rules.code)
            if reason is None:
                found.append(record.seed)
            else:
                left_out.setdefault(reason, []).append(record.seed)
    return found, left_out


def obstacle(row: Cell, baseline: Cell, *, rules: Rules = STUDY) -> str | None:
    """Return why no score of two rows is compared, None where scores may be."""
    seeds, left_out = pairs(row, baseline, rules=rules)
    if left_out and not seeds:
        return "; ".join(f"{reason} (seeds {_spaced(own)})" for reason, own in left_out.items())
    diverged = [
        f"{count} of {len(cell.seeds)} of the {name}"
        for cell, name in ((row, "row"), (baseline, "baseline"))
        if (count := diverged_seeds(cell))
    ]
    if diverged:
        return f"seeds diverged: {', '.join(diverged)}; the others are not a fair sample"
    if not seeds:
        own, its = (
            _spaced([r.seed for r in cell.records if r.finished]) or "none"
            for cell in (row, baseline)
        )
        return f"no seed in common that finished ({own}; {its})"
    return None


def values(cell: Cell, score: str) -> dict[int, float]:
    """Return a score by seed, of the seeds that finished."""
    found = {record.seed: record.figure(score) for record in cell.records if record.finished}
    return {seed: value.value for seed, value in found.items() if value is not None}


def higher_is_better(cell: Cell, score: str) -> bool:
    """Return the direction of a score; True where no run has it."""
    found = (record.figure(score) for record in cell.records)
    return next((value.higher_is_better for value in found if value is not None), True)


def diverged_seeds(cell: Cell) -> int:
    """Count the seeds that diverged."""
    return sum(record.outcome.status == "diverged" for record in cell.records)


def marks(cell: Cell) -> list[str]:
    """Return what a reader must know of a row's runs: `did not learn 2/5`, `sees the future`."""
    flat = sum(learned(record) is False for record in cell.records)
    found = [f"did not learn {flat}/{len(cell.records)}"] if flat else []
    return [*found, "sees the future"] if any(r.sees_future for r in cell.records) else found


def future_note(cells: Mapping[str, Cell]) -> list[str]:
    """Name the rows, by their labels, whose model sees the tokens that it predicts."""
    seen = {
        label: sorted({norm for record in cell.records for norm in record.sees_future})
        for label, cell in cells.items()
    }
    rows = "; ".join(f"{label} ({', '.join(norms)})" for label, norms in seen.items() if norms)
    said = "a norm shows these models the tokens that they predict, so that their losses and "
    return [f"sees the future: {rows}: {said}scores are no language model's"] if rows else []


def some(labels: Sequence[str], most: int | None) -> str:
    """Name the first labels, and count the others."""
    more = [] if most is None or len(labels) <= most else [f"{len(labels) - most} more"]
    return ", ".join([*labels[:most], *more])


def scored_by(
    cells: Mapping[str, Cell], scores: Sequence[str], *, most: int | None = None
) -> list[str]:
    """Name how scores were computed, with the rows of each way if a score has several."""
    found: dict[str, list[str]] = {}
    for score in scores:
        ways: dict[str, list[str]] = {}
        for label, cell in cells.items():
            if signature := cell.signature(score):
                ways.setdefault(signature, []).append(label)
        for signature, labels in ways.items():
            rows = f" ({some(labels, most)})" if len(ways) > 1 else ""
            found.setdefault(signature, []).append(score + rows)
    said = "; ".join(f"{', '.join(names)} {way}" for way, names in found.items())
    return [f"scored by: {said}"] if said else []


def not_learned(cell: Cell, score: str) -> str | None:
    """Return how a score compares with the untrained baseline where it is not clear of it."""
    return at_baseline([record for record in cell.records if record.finished], score)


def best(cells: Sequence[Cell], score: str, *, rules: Rules = STUDY) -> int | None:
    """Return the place of the row that is significantly better than each other, if one is.

    Rows without such a score are left out. Every other must have five seeds, all of which finished,
    be clear of the untrained baseline, and be made by the code of the others, seed by seed; p is
    corrected by Holm over all pairs of rows. For metrics of probes no side is better.
    """
    if score.startswith("stability/") or any(diverged_seeds(cell) for cell in cells):
        return None
    there = [n for n, cell in enumerate(cells) if cell.score(score) is not None]
    if len(there) < 2 or not all(_counts(cells[n], score) for n in there):
        return None
    if not all(one_code(cells[a], cells[b], rules=rules) for a, b in combinations(there, 2)):
        return None
    sign = 1 if higher_is_better(cells[there[0]], score) else -1
    found = max(there, key=lambda n: sign * _mean(cells[n], score))
    both = list(combinations(there, 2))
    gaps = [difference(cells[a], cells[b], score, rules=rules).interval for a, b in both]
    ours = [found in pair for pair in both]
    for (a, _), gap, own in zip(both, gaps, ours, strict=True):
        ahead = gap is not None and sign * gap.mean * (1 if a == found else -1) > 0
        if own and (gap is None or gap.n < SEEDS_TO_DECIDE or not ahead):
            return None
    ps = [1.0 if gap is None else p_value(gap) for gap in gaps]
    limit = 1 - CONFIDENCE
    if any(p >= limit for p, own in zip(ps, ours, strict=True) if own):
        return None  # no correction makes these smaller, and this saves its import
    corrected = zip(holm(ps), ours, strict=True)
    return found if all(p < limit for p, own in corrected if own) else None


def one_code(a: Cell, b: Cell, *, rules: Rules = STUDY) -> bool:
    """Tell whether the two runs of each pair were made by the same code."""
    others = {record.seed: record.made_by for record in b.records}
    seeds = pairs(a, b, rules=rules)[0]
    runs = [record for record in a.records if record.seed in seeds]
    return all(same_code(run.made_by, others[run.seed]) for run in runs)


def _counts(cell: Cell, score: str) -> bool:
    """Tell whether a row has enough seeds, all finished, and is clear of the baseline."""
    complete = SEEDS_TO_DECIDE <= len(values(cell, score)) == len(cell.seeds)
    return complete and at_baseline(cell.records, score) is None


def _mean(cell: Cell, score: str) -> float:
    summary = cell.score(score)
    assert summary is not None
    return summary.mean


# What two rows differ in -------------------------------------------------------------------------

Settings = Mapping[str, tuple[Any, Any]]
"""Keys of the config with their two values."""


def beyond_names(a: Cell, b: Cell) -> Settings:
    """Return what two rows differ in beyond what names them (norm, placement, batch).

    Nothing for rows with the same name: their settings are what is compared.
    """
    every = settings(a.parts, b.parts, ())
    found = {key: pair for key, pair in every.items() if not f"{key}.".startswith(_NAMED)}
    return _told(a, b, found) if len(found) < len(every) else {}


def compared(a: Cell, b: Cell) -> Settings:
    """Return what two rows with the same name differ in; nothing for other rows."""
    every = settings(a.parts, b.parts, ())
    return {} if any(f"{key}.".startswith(_NAMED) for key in every) else _told(a, b, every)


def _told(a: Cell, b: Cell, found: Settings) -> Settings:
    """Put one option for all keys below it, and leave out what repeats another key.

    So `schedule.lr`, which is `optim.lr` again.
    """
    told: dict[str, tuple[Any, Any]] = {}
    marks: set[tuple[str, str]] = set()
    for key, pair in found.items():
        group = key.partition(".")[0]
        options = a.choice(group), b.choice(group)
        if options[0] != options[1]:
            key, pair = group, options
        mark = key.rpartition(".")[2], repr(pair)
        if mark not in marks:
            marks.add(mark)
            told[key] = pair
    return told


def obstacles(unlike: Settings) -> list[str]:
    """Return those of the settings that differ which rule out a comparison, in words."""
    below = tuple(f"{fixed}." for fixed in _FIXED)
    return [
        f"{key} {own}, the baseline's {its}"
        for key, (own, its) in unlike.items()
        if key in _FIXED or key.startswith(below)
    ]


def _spaced(seeds: Sequence[int]) -> str:
    return " ".join(map(str, seeds))
