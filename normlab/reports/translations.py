"""What runs translated: sentences of a test side by side, and the paired bootstrap of two rows.

Sentences are drawn at random. For a row at a point of the grid the first seed is shown that left
translations. The bootstrap (Koehn 2004) asks seed by seed whether the difference between these
trained models would hold on other sentences; the t test of tables asks whether it would hold with
other seeds.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from normlab.records.aggregate import Cell
from normlab.records.record import RunRecord
from normlab.records.store import HYPOTHESES_FILE, hypotheses_splits, read_hypotheses
from normlab.reports.comparison import Rules, pairs
from normlab.reports.runs import Run

if TYPE_CHECKING:
    from normlab.metrics.bleu import Bootstrap

Text = tuple[Sequence[str], Sequence[str]]
"""Sources and references, one line per sentence."""
TextOf = Callable[[RunRecord], Text]
"""Returns the text of a run's test; raises ValueError where it cannot be had."""
SPLIT, SCORE = "test", "test/bleu"
_COUNT = 5
_DRAW = 1  # the seed of the drawing: the same sentences on every page
_ROWS = 40  # rows that are shown: no reader compares more
_TOLERANCE = 1e-6


class Translation(NamedTuple):
    """What a run made of a sentence, with its chrF where the reference is known."""

    row: str
    at: str
    seed: int
    text: str
    chrf: float | None


class Sample(NamedTuple):
    """One sentence: its line in the split from 1, both sides if known, and its translations."""

    line: int
    source: str | None
    reference: str | None
    translations: Sequence[Translation]


@dataclass(frozen=True)
class SideBySide:
    """Sentences of one test: `data` names it, `total` is its size.

    `missing` says why there are no sources and references, "" where nobody asked for them or they
    are there; `left_out` names, in one line each, translations that cannot be shown.
    """

    data: str
    total: int
    sentences: Sequence[Sample]
    missing: str
    left_out: Sequence[str]


def checksums(record: RunRecord) -> object:
    """Return the checksums of the test by language: runs with equal ones share a text."""
    return (record.data.get("checksums") or {}).get(SPLIT)


def side_by_side(
    runs: Iterable[Run], text_of: TextOf | None = None, *, count: int = _COUNT
) -> list[SideBySide]:
    """Return `count` sentences of each test that runs left translations of.

    Without `text_of` they have translations alone.
    """
    settings: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        settings.setdefault((run.planned.row, run.planned.point), []).append(run)
    groups: dict[str, list[tuple[Run, RunRecord]]] = {}
    for members in settings.values():
        for run in sorted(members, key=lambda run: run.planned.seed):
            if run.record and run.folder and SPLIT in hypotheses_splits(run.folder):
                key = json.dumps(checksums(run.record), sort_keys=True)
                groups.setdefault(key, []).append((run, run.record))
                break
    return [_group(members[:_ROWS], text_of, count) for members in groups.values()]


def _group(
    members: Sequence[tuple[Run, RunRecord]], text_of: TextOf | None, count: int
) -> SideBySide:
    data = members[0][1].data
    text, missing = None, ""
    try:
        text = None if text_of is None else text_of(members[0][1])
    except ValueError as error:
        missing = str(error)
    left_out: list[str] = []
    outputs: list[tuple[Run, list[str]]] = []
    for run, _ in members:
        assert run.folder is not None
        try:
            outputs.append((run, read_hypotheses(run.folder, SPLIT)))
        except (ValueError, OSError) as error:
            left_out.append(str(error))
    lengths = Counter(len(made) for _, made in outputs)
    total = len(text[1]) if text is not None else max(lengths, key=lengths.__getitem__, default=0)
    for run, made in outputs:
        if len(made) != total and run.record is not None:
            said = f"{len(made):,} translations of {total:,} sentences"
            left_out.append(f"{run.record.run_id}: {said}")
    whole = [(run.planned, made) for run, made in outputs if len(made) == total]
    sentences: list[Sample] = []
    for n in sorted(random.Random(_DRAW).sample(range(total), min(count, total))):
        source, reference = (None, None) if text is None else (text[0][n], text[1][n])
        translations = [
            Translation(of.row, of.point, of.seed, made[n], _chrf(made[n], reference))
            for of, made in whole
        ]
        if translations:
            sentences.append(Sample(n + 1, source, reference, translations))
    label = str(data.get("label") or data.get("source") or "unknown data")
    return SideBySide(label, total, sentences, missing, left_out)


def _chrf(translation: str, reference: str | None) -> float | None:
    if reference is None:
        return None
    from normlab.metrics.bleu import sentence_chrf

    return sentence_chrf(translation, reference)


# The paired bootstrap -----------------------------------------------------------------------------


def bootstrap(
    baseline: Sequence[Run], other: Sequence[Run], text_of: TextOf, *, samples: int = 1000
) -> "dict[str, Bootstrap]":
    """Test the difference in BLEU for each seed that is a pair, and for `all` of several together.

    Raises ValueError with the reason where the two were not trained, tested or computed in the same
    way, and where translations are missing or do not have the score of their record.
    """
    from normlab.metrics.bleu import paired_bootstrap

    sides = [{run.planned.seed: run for run in runs} for runs in (baseline, other)]
    cells = [Cell.of(run.record for run in runs if run.record) for runs in (baseline, other)]
    seeds, reason = pairs(cells[1], cells[0], Rules(settings=True))
    ways = [cell.signature(SCORE) for cell in cells]
    if none := [cell.choice("task") for cell in cells if cell.score(SCORE) is None]:
        reason = f"a run of the task {none[0]} has no {SCORE}, which the bootstrap tests"
    elif ways[0] != ways[1]:
        reason = f"{SCORE} was scored as {ways[0]} and {ways[1]}"
    if reason is not None:
        names = " and ".join(cell.records[0].run_id for cell in cells)
        raise ValueError(f"{names} cannot be compared: {reason}")
    _, references = text_of(cells[0].records[0])
    lowercase = "case:lc" in str(ways[0]).split("|")
    one, two = (
        {seed: _translations(side[seed], references, lowercase) for seed in seeds} for side in sides
    )
    tests = {str(seed): [seed] for seed in seeds} | ({"all": seeds} if len(seeds) > 1 else {})
    return {
        name: paired_bootstrap(
            [one[seed] for seed in own],
            [two[seed] for seed in own],
            references,
            lowercase=lowercase,
            samples=samples,
        )
        for name, own in tests.items()
    }


def _translations(run: Run, references: Sequence[str], lowercase: bool) -> list[str]:
    """Return what a run translated; ValueError unless it has the score of the record."""
    from normlab.metrics.bleu import bleu_scores

    assert run.record is not None and run.folder is not None
    again = f"write it again with normlab eval {run.folder} --outputs"
    path, kept = run.folder / HYPOTHESES_FILE, run.record.scores[SCORE]
    try:
        lines = read_hypotheses(run.folder)
        now = bleu_scores(lines, references, lowercase=lowercase)["bleu"].value
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}; {again} {run.folder / HYPOTHESES_FILE}") from None
    if not math.isclose(now, kept.value, rel_tol=_TOLERANCE):
        raise ValueError(
            f"{path} scores {now:.4f}, its record says {kept.value:.4f}: they are not of one "
            f"test; {again} {path}"
        )
    return lines
