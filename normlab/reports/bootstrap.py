"""The paired bootstrap of two rows on the sentences of their test, seed by seed (Koehn 2004).

It asks whether the difference between these trained models would hold on other sentences; the t
test of tables asks whether it would hold with other seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from normlab.metrics.bleu import Bootstrap, corpus_bleu, paired_bootstrap
from normlab.records.aggregate import Cell
from normlab.records.hypotheses import HYPOTHESES_FILE, read_hypotheses
from normlab.records.pairs import code_remark, why_not_paired
from normlab.records.record import RunRecord
from normlab.reports.comparison import beyond_names, compared, obstacles
from normlab.reports.samples import SPLIT, checksums

SCORE = "test/bleu"
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Scored:
    """A tested run: its record, and the translations that it left."""

    record: RunRecord
    hypotheses: tuple[str, ...]


@dataclass(frozen=True)
class Compared:
    """The tests by seed and of all seeds together, and what a reader must know."""

    seeds: Mapping[int, Bootstrap]
    together: Bootstrap
    notes: tuple[str, ...]


def read(side: Mapping[Path, RunRecord]) -> tuple[dict[int, Scored], list[str]]:
    """Read what the runs of a setting translated, by seed; also say which runs have none, and why.

    Raises ValueError where no run has any, for a seed given twice, and naming the file that does
    not fit its record.
    """
    found: dict[int, Scored] = {}
    without: list[str] = []
    for folder, record in side.items():
        if record.seed in found:
            raise ValueError(f"{folder}: seed {record.seed} is given twice; name each run once")
        if SCORE in record.scores and record.finished:
            found[record.seed] = Scored(record, _hypotheses(folder, record))
        elif record.finished:
            raise ValueError(
                f"{folder} has no score {SCORE}: the bootstrap is for runs of translation, "
                f"and its task is {record.choice('task')}"
            )
        else:
            without.append(f"{record.run_id} is left out: it ended as {record.outcome.status}")
    if not found:
        raise ValueError("; ".join(without) + "; nothing is left to compare")
    return found, without


def _hypotheses(folder: Path, record: RunRecord) -> tuple[str, ...]:
    path = folder / HYPOTHESES_FILE
    try:
        path, lines = read_hypotheses(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{path}: no such file; the bootstrap needs what the run translated, so give the run's "
            f"own folder, or write it again with normlab eval {folder} --outputs {path}"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{error}; write it again with normlab eval {folder} --outputs {path}"
        ) from None
    if len(lines) != record.scores[SCORE].n:
        raise ValueError(
            f"{path}: {len(lines)} lines, and {SCORE} was counted over {record.scores[SCORE].n} "
            f"sentences; write it again with normlab eval {folder} --outputs {path}"
        )
    return tuple(lines)


def compare(
    baseline: Mapping[int, Scored],
    other: Mapping[int, Scored],
    references: Sequence[str],
    *,
    samples: int = 1000,
) -> Compared:
    """Test the difference in BLEU for each seed that both have, and for all of them together.

    Raises ValueError with the reason where the two were not scored on the same text in the same
    way, have no seed in common or computed one in different arithmetic, or where a run's
    translations do not have the score of its record.
    """
    check_alike([*baseline.values(), *other.values()])
    common = sorted(baseline.keys() & other.keys())
    if not common:
        raise ValueError(
            f"no seed in common: {_numbers(baseline)} and {_numbers(other)}; pairs need runs of "
            "the same seeds"
        )
    for seed in common:
        reason = why_not_paired(baseline[seed].record, other[seed].record, code=False)
        if reason is not None:
            raise ValueError(
                f"{_label(baseline)} and {_label(other)} cannot be compared: seed {seed} has "
                f"{reason}"
            )
    lowercase = "case:lc" in _signature(baseline[common[0]]).split("|")
    for seed in common:
        for run in (baseline[seed], other[seed]):
            _check_score(run, references, lowercase=lowercase)

    def tested(seeds: Sequence[int]) -> Bootstrap:
        one, two = ([side[seed].hypotheses for seed in seeds] for side in (baseline, other))
        return paired_bootstrap(one, two, references, lowercase=lowercase, samples=samples)

    alone = [
        f"seed {_numbers(side.keys() - set(common))} of {_label(side)} has no partner"
        for side in (baseline, other)
        if side.keys() - set(common)
    ]
    seeds = {seed: tested([seed]) for seed in common}
    together = seeds[common[0]] if len(common) == 1 else tested(common)
    notes = [*alone, *_remarks(baseline[common[0]].record, other[common[0]].record)]
    return Compared(seeds, together, tuple(notes))


def check_alike(runs: Sequence[Scored]) -> None:
    """Raise ValueError for runs that cannot be compared, naming two and what they do not share.

    They must share the data, how translations were made and scored, and how long they trained,
    unless one of these is all that they differ in.
    """
    first = runs[0]
    for run in runs[1:]:
        pairs: dict[str, tuple[object, ...]] = {
            "their test sets are": tuple(checksums(each.record, SPLIT) for each in (first, run)),
            f"{SCORE} was scored as": (_signature(first), _signature(run)),
        }
        found = [f"{what} {a} and {b}" for what, (a, b) in pairs.items() if a != b]
        reason = why_not_paired(first.record, run.record, code=False)
        if reason is not None and reason.startswith("different data"):
            found.append(reason)
        unlike = beyond_names(Cell.of([first.record]), Cell.of([run.record]))
        found += obstacles(unlike)
        if found:
            raise ValueError(
                f"{first.record.run_id} and {run.record.run_id} cannot be compared: {found[0]}"
            )


def _remarks(one: RunRecord, other: RunRecord) -> list[str]:
    """Say what two runs that are compared differ in beyond what names them, code included."""
    cells = Cell.of([one]), Cell.of([other])
    notes = [f"NOT ALIKE: {key} is {a} and {b}" for key, (a, b) in beyond_names(*cells).items()]
    notes += [f"compared: {key}, {a} and {b}" for key, (a, b) in compared(*cells).items()]
    remark = code_remark([one.made_by, other.made_by])
    return notes if remark is None else [*notes, f"NOT ALIKE: {remark}"]


def _signature(run: Scored) -> str:
    return run.record.scores[SCORE].signature or "unknown"


def _check_score(run: Scored, references: Sequence[str], *, lowercase: bool) -> None:
    kept = run.record.scores[SCORE]
    now = corpus_bleu(run.hypotheses, references, lowercase=lowercase)
    if not math.isclose(now.value, kept.value, rel_tol=_TOLERANCE):
        raise ValueError(
            f"{run.record.run_id}: {HYPOTHESES_FILE} scores {now.value:.4f} ({now.signature}), its "
            f"record says {kept.value:.4f} ({kept.signature}): they are not of one test"
        )


def _label(side: Mapping[int, Scored]) -> str:
    record = next(iter(side.values())).record
    return record.run_id.removesuffix(f"-seed{record.seed}")


def _numbers(seeds: object) -> str:
    assert isinstance(seeds, set | Mapping)
    return " ".join(str(seed) for seed in sorted(seeds))
