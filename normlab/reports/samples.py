"""Sentences of a test with what several runs translated them to, side by side.

They are drawn, or chosen by sentence chrF. For a row at a point of the grid the first seed is shown
that left translations.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from normlab.records.hypotheses import hypotheses_splits, read_hypotheses
from normlab.records.record import RunRecord
from normlab.reports.runs import Run

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
