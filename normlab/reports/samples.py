"""Sentences of a test with what several runs made of them, drawn or chosen by sentence chrF."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from normlab.metrics.sentences import sentence_chrf

Choice = Literal["drawn", "worst", "differ"]


@dataclass(frozen=True)
class Sample:
    """One sentence: its line in the split from 1, both sides, and by run what it was made, chrF."""

    line: int
    source: str
    reference: str
    outputs: Mapping[str, str]
    chrf: Mapping[str, float]


def choose(
    sources: Sequence[str],
    references: Sequence[str],
    outputs: Mapping[str, Sequence[str]],
    *,
    count: int = 5,
    by: Choice = "drawn",
    seed: int = 1,
) -> list[Sample]:
    """Return some sentences, with the outputs of each run, by its label, in the runs' order.

    `drawn` takes any, the same for the same seed and length, in the order of the text; `worst`
    takes those of the lowest mean chrF over the runs, the lowest first; `differ` those whose
    highest and lowest chrF are furthest apart. All sides have a line a sentence.
    """
    if by == "drawn":
        size = len(references)
        lines = sorted(random.Random(seed).sample(range(size), min(count, size)))
    else:
        columns = [sentence_chrf(each, references) for each in outputs.values()]
        scores = list(zip(*columns, strict=True))
        merit = [max(row) - min(row) if by == "differ" else -sum(row) for row in scores]
        lines = sorted(range(len(merit)), key=lambda n: -merit[n])[:count]
    return [_sample(n, sources, references, outputs) for n in lines]


def _sample(
    n: int,
    sources: Sequence[str],
    references: Sequence[str],
    outputs: Mapping[str, Sequence[str]],
) -> Sample:
    made = {label: each[n] for label, each in outputs.items()}
    chrf = {label: sentence_chrf([text], [references[n]])[0] for label, text in made.items()}
    return Sample(n + 1, sources[n], references[n], made, chrf)
