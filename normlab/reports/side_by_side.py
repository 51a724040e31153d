"""Sentences of a test with what the rows of a page translated them to: a group for each text.

Of a row at a point of the grid the first seed is shown that left translations.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from normlab.records.hypotheses import hypotheses_splits, read_hypotheses
from normlab.records.record import RunRecord
from normlab.reports.evidence import Evidence
from normlab.reports.samples import Sample, checksums, choose

Text = tuple[Sequence[str], Sequence[str]]
"""Sources and references, a line a sentence."""
TextOf = Callable[[RunRecord], Text]
"""Returns the text of a run's test; raises ValueError where it cannot be had."""
SPLIT = "test"
_ROWS = 40  # that are shown: no reader compares more


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

    `missing` says why sources and references are not there, "" where nobody asked for them or they
    are; `left_out` whose translations cannot be shown, a line each.
    """

    data: str
    total: int
    sentences: tuple[tuple[Sample, tuple[Translation, ...]], ...]
    missing: str
    left_out: tuple[str, ...]


def side_by_side(evidence: Iterable[Evidence], text_of: TextOf | None = None) -> list[SideBySide]:
    """Return some sentences of each test that runs left translations of, drawn as `choose` does.

    Without `text_of` they have translations alone.
    """
    groups: dict[str, list[tuple[Evidence, RunRecord]]] = {}
    for each, record in _first_seeds(evidence):
        key = json.dumps(checksums(record, SPLIT), sort_keys=True)
        groups.setdefault(key, []).append((each, record))
    found = [_group(members[:_ROWS], text_of) for members in groups.values()]
    return [group for group in found if group.sentences or group.left_out]


def _first_seeds(evidence: Iterable[Evidence]) -> Iterator[tuple[Evidence, RunRecord]]:
    """Yield the first seed of each row at each point that left translations, in the rows' order."""
    settings: dict[tuple[str, str], list[Evidence]] = {}
    for each in evidence:
        settings.setdefault((each.planned.row, each.planned.point), []).append(each)
    for members in settings.values():
        for each in sorted(members, key=lambda each: each.planned.seed):
            if each.record is None or each.folder is None:
                continue
            if SPLIT in hypotheses_splits(each.folder):
                yield each, each.record
                break


def _group(members: Sequence[tuple[Evidence, RunRecord]], text_of: TextOf | None) -> SideBySide:
    left_out: list[str] = []
    outputs: dict[str, list[str]] = {}
    for number, (each, _) in enumerate(members):
        assert each.folder is not None
        try:
            outputs[str(number)] = read_hypotheses(each.folder, SPLIT)[1]
        except (ValueError, OSError) as error:
            left_out.append(str(error))
    text, missing = _text(members[0][1], text_of)
    lengths = Counter(map(len, outputs.values()))
    total = len(text[1]) if text is not None else max(lengths, key=lengths.__getitem__, default=0)
    for number in [key for key, lines in outputs.items() if len(lines) != total]:
        lines = outputs.pop(number)
        run = members[int(number)][1].run_id
        left_out.append(f"{run}: {len(lines):,} translations of {total:,} sentences")
    chosen = choose(text, outputs) if outputs else []
    label = members[0][1].data.get("label") or members[0][1].data.get("source") or "unknown data"
    sentences = tuple((sample, _translations(sample, members)) for sample in chosen)
    return SideBySide(str(label), total, sentences, missing, tuple(left_out))


def _text(record: RunRecord, text_of: TextOf | None) -> tuple[Text | None, str]:
    if text_of is None:
        return None, ""
    try:
        return text_of(record), ""
    except ValueError as error:
        return None, str(error)


def _translations(
    sample: Sample, members: Sequence[tuple[Evidence, RunRecord]]
) -> tuple[Translation, ...]:
    planned = {number: members[int(number)][0].planned for number in sample.outputs}
    return tuple(
        Translation(of.row, of.point, of.seed, sample.outputs[number], sample.chrf.get(number))
        for number, of in planned.items()
    )
