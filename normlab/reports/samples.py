"""Sentences of a test with what several runs made of them, drawn or chosen by sentence chrF."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from normlab.metrics.sentences import sentence_chrf
from normlab.records.record import RunRecord

Choice = Literal["drawn", "worst", "differ"]


@dataclass(frozen=True)
class Sample:
    """One sentence: its line in the split from 1, both sides, and by run what it was made, chrF.

    Where the text is not known there are neither sides nor chrF.
    """

    line: int
    source: str | None
    reference: str | None
    outputs: Mapping[str, str]
    chrf: Mapping[str, float]


def choose(
    text: tuple[Sequence[str], Sequence[str]] | None,
    outputs: Mapping[str, Sequence[str]],
    *,
    count: int = 5,
    by: Choice = "drawn",
    seed: int = 1,
) -> list[Sample]:
    """Return some sentences, with the outputs of each run, by its label, in the runs' order.

    `text` are sources and references, None where they are not known, which `drawn` can do without.
    `drawn` takes any, the same for the same seed and length, in the order of the text; `worst`
    takes those of the lowest mean chrF over the runs, the lowest first; `differ` those whose
    highest and lowest chrF are furthest apart. All sides have a line a sentence.
    """
    if by == "drawn" or text is None:
        assert by == "drawn", "chrF takes references"
        size = len(next(iter(outputs.values())))
        lines = sorted(random.Random(seed).sample(range(size), min(count, size)))
    else:
        columns = [sentence_chrf(each, text[1]) for each in outputs.values()]
        scores = list(zip(*columns, strict=True))
        merit = [max(row) - min(row) if by == "differ" else -sum(row) for row in scores]
        lines = sorted(range(len(merit)), key=lambda n: -merit[n])[:count]
    return [_sample(n, text, outputs) for n in lines]


def checksums(record: RunRecord, split: str) -> object:
    """Return the checksums of a split of a record, by language: runs of equal ones share a text."""
    return (record.data.get("checksums") or {}).get(split)


def _sample(
    n: int,
    text: tuple[Sequence[str], Sequence[str]] | None,
    outputs: Mapping[str, Sequence[str]],
) -> Sample:
    made = {label: each[n] for label, each in outputs.items()}
    if text is None:
        return Sample(n + 1, None, None, made, {})
    source, reference = text[0][n], text[1][n]
    chrf = {label: sentence_chrf([each], [reference])[0] for label, each in made.items()}
    return Sample(n + 1, source, reference, made, chrf)
