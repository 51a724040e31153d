"""Test sentences side by side: the source, the reference, and the translation of each row.

Sentences are sampled at random. Each row at a grid point is represented by its first seed with
translations.
"""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from normlab.records.packed import Key
from normlab.records.record import RunRecord
from normlab.records.store import read_hypotheses
from normlab.reports.runs import Run, by_setting
from normlab.reports.setting_names import point_name
from normlab.reports.translations.reference_text import SPLIT, Text, checksums, text_of_test

_DRAW = 1  # seed of the sample, fixed so that the sentences are the same each time


class SentenceVersion(NamedTuple):
    """One version of a sentence: the source, the reference, or the translation by the run `key`."""

    name: str
    text: str
    chrf: float | None = None
    key: Key | None = None


class SideBySide(NamedTuple):
    """A sample of sentences from a test set, each with its translations.

    `data` is the name of the test set, and `total` its number of sentences. `sentences` maps line
    numbers, counted from 1, to the versions of the sentence. `left_out` has one line for each run
    whose translations cannot be shown.
    """

    data: str
    total: int
    sentences: dict[int, list[SentenceVersion]]
    left_out: list[str]


class TranslatedRun(NamedTuple):
    """A run that has translated the test set: its key, its record, and a line per sentence."""

    key: Key
    record: RunRecord
    lines: Sequence[str]

    @property
    def name(self) -> str:
        setting = ", ".join(filter(None, [self.key.row, point_name(self.key.point)]))
        return f"{setting} seed {self.key.seed}"


def side_by_side(runs: Iterable[Run], data_dir: Path | None, *, count: int) -> SideBySide | None:
    """Return `count` sentences of the first run's test set, or None if no run has translations.

    Raises UserError if the test set cannot be read (see `text_of_test`), or if a run's translations
    are damaged.
    """
    translated = [
        run for seeds in by_setting(runs).values() if (run := _first_translated(seeds)) is not None
    ]
    if not translated:
        return None
    first = translated[0].record
    text = text_of_test(first, data_dir)
    total = len(text[1])
    same_test = [
        run
        for run in translated
        if checksums(run.record) == checksums(first) and len(run.lines) == total
    ]
    left_out = [
        f"{run.record.run_id}: translated a different test set"
        for run in translated
        if run not in same_test
    ]
    drawn = random.Random(_DRAW).sample(range(total), min(count, total)) if same_test else []
    label = str(first.data.get("label") or first.data.get("source") or "unknown data")
    sentences = {n + 1: _versions(n, text, same_test) for n in sorted(drawn)}
    return SideBySide(label, total, sentences, left_out)


def _first_translated(seeds: Iterable[Run]) -> TranslatedRun | None:
    """Return a row's first seed that has ended and has translations, or None if there is none."""
    for run in sorted(seeds, key=lambda run: run.key.seed):
        lines = read_hypotheses(run.folder).get(SPLIT) if run.folder else None
        if run.record and lines is not None:
            return TranslatedRun(run.key, run.record, lines)
    return None


def _versions(n: int, text: Text, runs: Sequence[TranslatedRun]) -> list[SentenceVersion]:
    """Return the versions of the sentence on line `n`, counted from 0."""
    from normlab.metrics.bleu import corpus_chrf

    sources, references = text
    versions = [
        SentenceVersion("source", sources[n]),
        SentenceVersion("reference", references[n]),
    ]
    for run in runs:
        chrf = corpus_chrf([run.lines[n]], [references[n]]).value
        versions.append(SentenceVersion(run.name, run.lines[n], chrf, run.key))
    return versions
