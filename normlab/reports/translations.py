"""Compares translations: test sentences side by side, and the paired bootstrap of two rows.

Sentences are sampled at random. Each row at a grid point is represented by its first seed with
translations. The bootstrap (Koehn 2004) tests, for each seed, whether the difference between these
trained models would hold on other sentences; the t test in tables tests whether it would hold with
other seeds.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from normlab.errors import UserError
from normlab.records.packed import Key
from normlab.records.pairs import UNPLANNED, Experiment
from normlab.records.record import RunRecord
from normlab.records.store import HYPOTHESES_FILE, read_hypotheses
from normlab.reports.runs import Run, by_setting
from normlab.reports.setting_names import point_name
from normlab.reports.tables.comparison import Comparison

if TYPE_CHECKING:
    from normlab.metrics.bleu import Bootstrap

Text = tuple[Sequence[str], Sequence[str]]
"""Sources and references, one line per sentence."""
SPLIT, SCORE = "test", "test/bleu"
_DRAW = 1  # seed of the sample, fixed so that the sentences are the same each time


class SentenceVersion(NamedTuple):
    """One version of a sentence: the source, the reference, or the translation by the run `key`."""

    name: str
    text: str
    chrf: float | None = None
    key: Key | None = None


class SideBySide(NamedTuple):
    """Sentences of one test set; `data` is its name, `total` its number of sentences.

    `sentences` maps line numbers (from 1) to texts. `left_out` has one line per run whose
    translations cannot be shown.
    """

    data: str
    total: int
    sentences: dict[int, list[SentenceVersion]]
    left_out: list[str]


def checksums(record: RunRecord) -> object:
    """Return the test set's checksums, which are equal for runs with the same test set."""
    return (record.data.get("checksums") or {}).get(SPLIT)


def side_by_side(runs: Iterable[Run], data_dir: Path | None, *, count: int) -> SideBySide | None:
    """Return `count` sentences of the first run's test set; None if no run has translations.

    The test set is read as `text_of_test` does. Raises UserError if it is not available, or a
    run's translations are damaged.
    """
    shown: list[tuple[Run, RunRecord, list[str]]] = []
    for members in by_setting(runs).values():
        for run in sorted(members, key=lambda run: run.key.seed):
            lines = read_hypotheses(run.folder).get(SPLIT) if run.folder else None
            if run.record and lines is not None:
                shown.append((run, run.record, lines))
                break
    if not shown:
        return None
    from normlab.metrics.bleu import corpus_chrf

    first = shown[0][1]
    sources, references = text_of_test(first, data_dir)
    total = len(references)
    whole: list[tuple[Run, list[str]]] = []
    left_out: list[str] = []
    for run, record, lines in shown:
        if checksums(record) != checksums(first) or len(lines) != total:
            left_out.append(f"{record.run_id}: translated a different test set")
        else:
            whole.append((run, lines))
    sentences: dict[int, list[SentenceVersion]] = {}
    for n in sorted(random.Random(_DRAW).sample(range(total), min(count, total)) if whole else ()):
        versions = [
            SentenceVersion("source", sources[n]),
            SentenceVersion("reference", references[n]),
        ]
        for run, lines in whole:
            chrf = corpus_chrf([lines[n]], [references[n]]).value
            setting = ", ".join(filter(None, [run.key.row, point_name(run.key.point)]))
            name = f"{setting} seed {run.key.seed}"
            versions.append(SentenceVersion(name, lines[n], chrf, run.key))
        sentences[n + 1] = versions
    label = str(first.data.get("label") or first.data.get("source") or "unknown data")
    return SideBySide(label, total, sentences, left_out)


def bootstrap(
    baseline: Sequence[Run], other: Sequence[Run], data_dir: Path | None, *, samples: int = 1000
) -> "dict[str, Bootstrap]":
    """Test the difference in BLEU for each paired seed; several seeds are also tested as `all`.

    Raises UserError with the reason if the two were not trained, tested or computed in the same
    way, or if translations are missing or their BLEU differs from the record.
    """
    from normlab.metrics.bleu import paired_bootstrap, scored_as

    ended = [run.record for run in (*baseline, *other) if run.record and run.record.finished]
    if without := [record.run_id for record in ended if SCORE not in record.scores]:
        raise UserError(f"{without[0]} has no {SCORE}: the bootstrap compares translations")
    sides = [
        Experiment.of(run.record for run in runs_of_row if run.record)
        for runs_of_row in (baseline, other)
    ]
    compared = Comparison.of(sides[1], sides[0], UNPLANNED)
    seeds, reason = compared.seeds, compared.obstacle
    ways = {str(side.signature(SCORE)) for side in sides if side.scores(SCORE)}
    if len(ways) > 1:
        reason = f"{SCORE} was computed in several ways ({', '.join(sorted(ways))})"
    if reason:
        names = " and ".join(side.records[0].run_id for side in sides)
        raise UserError(f"{names} cannot be compared: {reason}")
    _, references = text_of_test(sides[0].records[0], data_dir)
    how = scored_as("".join(ways))
    one, two = (
        {run.key.seed: _scored(run, references, how) for run in runs if run.key.seed in seeds}
        for runs in (baseline, other)
    )
    tested = partial(paired_bootstrap, references=references, samples=samples, **how)
    tests = {str(seed): tested([one[seed]], [two[seed]]) for seed in seeds}
    whole = ([side[seed] for seed in seeds] for side in (one, two))
    return tests | ({"all": tested(*whole)} if len(seeds) > 1 else {})


def _scored(run: Run, references: Sequence[str], how: Mapping[str, Any]) -> list[str]:
    """Return a run's translations; raises UserError unless their BLEU matches the record."""
    from normlab.metrics.bleu import bleu_scores

    assert run.record is not None and run.folder is not None
    path, recorded = run.folder / HYPOTHESES_FILE, run.record.scores[SCORE]
    again = f"rewrite it with normlab eval {run.folder} --outputs {path}"
    try:
        if (lines := read_hypotheses(run.folder).get(SPLIT)) is None:
            raise UserError("no such file")
        now = bleu_scores(lines, references, **how)["bleu"].value
    except (UserError, OSError) as error:
        raise UserError(f"{path}: {error}; {again}") from None
    if not math.isclose(now, recorded.value, rel_tol=1e-6):
        raise UserError(
            f"{path} scores {now:.4f}, but the record says {recorded.value:.4f}; {again}"
        )
    return lines


def text_of_test(record: RunRecord, data_dir: Path | None = None) -> Text:
    """Return the sources and plain references of a run's test, in order, without using the network.

    They are read from `data_dir`, or from the run's own data folder. Raises UserError if the task
    is not translation, or if the text is missing or differs from the record's.
    """
    from normlab.config.instantiation import builder_of
    from normlab.config.registry import node_settings
    from normlab.data.cache import offline
    from normlab.data.corpus import Corpus

    task, key = record.config["task"], "task.corpus"
    if "corpus" not in task or "test_search" not in task:
        raise UserError(f"{record.run_id}: {record.choice('task')} is not a translation task")
    node = dict(task["corpus"])
    if data_dir is not None and "data_dir" in node:
        node["data_dir"] = str(data_dir)
    with offline():  # reads only the corpus, because a task would import torch
        try:
            corpus = cast(
                "Corpus", builder_of(node, key, Corpus, (), node_settings(task, "task")["corpus"])()
            )
            text = corpus.splits[SPLIT]
        except (UserError, OSError) as error:
            message = f"the test text cannot be read: {error} (pass its folder with --data-dir)"
            raise UserError(message) from None
    if dict(zip(corpus.languages, text.checksums(), strict=True)) != checksums(record):
        message = f"{record.run_id} was tested on text that differs from its folder's"
        raise UserError(f"{message}: pass the right folder with --data-dir")
    if corpus.form == "raw":
        return text.source, text.target
    from normlab.data.languages import language_of
    from normlab.data.vocabulary import join_pieces, moses_text

    join = join_pieces if corpus.form == "bpe" else str
    target = moses_text(map(join, text.target), language_of(corpus.languages[1], "languages"))
    return [*map(join, text.source)], target
