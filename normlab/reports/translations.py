"""What runs translated: sentences of a test side by side, and the paired bootstrap of two rows.

Sentences are drawn, or chosen by sentence chrF. For a row at a point of the grid the first seed is
shown that left translations. The bootstrap (Koehn 2004) asks seed by seed whether the difference
between these trained models would hold on other sentences; the t test of tables asks whether it
would hold with other seeds.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from normlab.records.aggregate import Cell
from normlab.records.pairs import code_remark, why_not_paired
from normlab.records.record import RunRecord
from normlab.records.store import HYPOTHESES_FILE, hypotheses_splits, read_hypotheses
from normlab.reports.comparison import beyond_names, compared, obstacles
from normlab.reports.runs import Run

if TYPE_CHECKING:
    from normlab.metrics.bleu import Bootstrap

Choice = Literal["drawn", "worst", "differ"]
Text = tuple[Sequence[str], Sequence[str]]
"""Sources and references, one line per sentence."""
TextOf = Callable[[RunRecord], Text]
"""Returns the text of a run's test; raises ValueError where it cannot be had."""
SPLIT = "test"
_ROWS = 40  # rows that are shown: no reader compares more


@dataclass(frozen=True)
class Sample:
    """One sentence: its line in the split from 1, both sides, and the output and chrF of each run.

    Where the text is not known there are neither sides nor chrF.
    """

    line: int
    source: str | None
    reference: str | None
    outputs: Mapping[str, str]
    chrf: Mapping[str, float]


def choose(
    text: Text | None,
    outputs: Mapping[str, Sequence[str]],
    *,
    count: int = 5,
    by: Choice = "drawn",
    seed: int = 1,
) -> list[Sample]:
    """Return some sentences, with the outputs of each run, by its label, in the runs' order.

    `text` is None where it is not known, which only `drawn` allows. `drawn` takes any sentences,
    the same for the same seed and length, in the order of the text; `worst` takes those with the
    lowest mean chrF over the runs, the lowest first; `differ` those whose highest and lowest chrF
    are furthest apart.
    """
    if by == "drawn" or text is None:
        assert by == "drawn", "chrF takes references"
        size = len(next(iter(outputs.values())))
        lines = sorted(random.Random(seed).sample(range(size), min(count, size)))
    else:
        from normlab.metrics.bleu import sentence_chrf

        columns = [sentence_chrf(each, text[1]) for each in outputs.values()]
        scores = list(zip(*columns, strict=True))
        merit = [max(row) - min(row) if by == "differ" else -sum(row) for row in scores]
        lines = sorted(range(len(merit)), key=lambda n: -merit[n])[:count]
    return [_sample(n, text, outputs) for n in lines]


def checksums(record: RunRecord, split: str) -> object:
    """Return the checksums of a split by language: runs with equal ones share a text."""
    return (record.data.get("checksums") or {}).get(split)


def _sample(n: int, text: Text | None, outputs: Mapping[str, Sequence[str]]) -> Sample:
    made = {label: each[n] for label, each in outputs.items()}
    if text is None:
        return Sample(n + 1, None, None, made, {})
    from normlab.metrics.bleu import sentence_chrf

    source, reference = text[0][n], text[1][n]
    chrf = {label: sentence_chrf([each], [reference])[0] for label, each in made.items()}
    return Sample(n + 1, source, reference, made, chrf)


@dataclass(frozen=True)
class Translation:
    """What a run made of a sentence, with its chrF where the reference is known."""

    row: str
    at: str
    seed: int
    text: str
    chrf: float | None


@dataclass(frozen=True)
class SideBySide:
    """Sentences of one test: `data` names it, `total` is its size.

    `missing` says why there are no sources and references, "" where nobody asked for them or they
    are there; `left_out` names, in one line each, translations that cannot be shown.
    """

    data: str
    total: int
    sentences: tuple[tuple[Sample, tuple[Translation, ...]], ...]
    missing: str
    left_out: tuple[str, ...]


def side_by_side(runs: Iterable[Run], text_of: TextOf | None = None) -> list[SideBySide]:
    """Return some sentences of each test that runs left translations of, drawn as by `choose`.

    Without `text_of` they have translations alone.
    """
    groups: dict[str, list[tuple[Run, RunRecord]]] = {}
    for run, record in _first_seeds(runs):
        key = json.dumps(checksums(record, SPLIT), sort_keys=True)
        groups.setdefault(key, []).append((run, record))
    found = [_group(members[:_ROWS], text_of) for members in groups.values()]
    return [group for group in found if group.sentences or group.left_out]


def _first_seeds(runs: Iterable[Run]) -> Iterator[tuple[Run, RunRecord]]:
    """Yield the first seed of each row at each point that left translations, in the rows' order."""
    settings: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        settings.setdefault((run.planned.row, run.planned.point), []).append(run)
    for members in settings.values():
        for run in sorted(members, key=lambda run: run.planned.seed):
            if run.record is None or run.folder is None:
                continue
            if SPLIT in hypotheses_splits(run.folder):
                yield run, run.record
                break


def _group(members: Sequence[tuple[Run, RunRecord]], text_of: TextOf | None) -> SideBySide:
    left_out: list[str] = []
    outputs: dict[str, list[str]] = {}
    for number, (run, _) in enumerate(members):
        assert run.folder is not None
        try:
            outputs[str(number)] = read_hypotheses(run.folder, SPLIT)[1]
        except (ValueError, OSError) as error:
            left_out.append(str(error))
    text, missing = None, ""
    try:
        text = None if text_of is None else text_of(members[0][1])
    except ValueError as error:
        missing = str(error)
    lengths = Counter(map(len, outputs.values()))
    total = len(text[1]) if text is not None else max(lengths, key=lengths.__getitem__, default=0)
    for number in [key for key, lines in outputs.items() if len(lines) != total]:
        lines = outputs.pop(number)
        run_id = members[int(number)][1].run_id
        left_out.append(f"{run_id}: {len(lines):,} translations of {total:,} sentences")
    chosen = choose(text, outputs) if outputs else []
    data = members[0][1].data
    sentences: list[tuple[Sample, tuple[Translation, ...]]] = []
    for sample in chosen:
        own: list[Translation] = []
        for number, said in sample.outputs.items():
            of = members[int(number)][0].planned
            own.append(Translation(of.row, of.point, of.seed, said, sample.chrf.get(number)))
        sentences.append((sample, tuple(own)))
    label = str(data.get("label") or data.get("source") or "unknown data")
    return SideBySide(label, total, tuple(sentences), missing, tuple(left_out))


# The paired bootstrap -----------------------------------------------------------------------------

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

    seeds: "Mapping[int, Bootstrap]"
    together: "Bootstrap"
    notes: tuple[str, ...]


def read_scored(side: Mapping[Path, RunRecord]) -> tuple[dict[int, Scored], list[str]]:
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


def bootstrap(
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
    from normlab.metrics.bleu import paired_bootstrap

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

    def tested(seeds: Sequence[int]) -> "Bootstrap":
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
    from normlab.metrics.bleu import corpus_bleu

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
