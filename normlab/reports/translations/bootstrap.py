"""The paired bootstrap of two rows: would their difference in BLEU hold on other sentences?

The bootstrap (Koehn 2004) tests, for each seed, whether the difference between these trained models
would hold on other sentences; the t test in tables tests whether it would hold with other seeds.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.errors import UserError
from normlab.records.pairs import UNPLANNED, Experiment
from normlab.records.store import HYPOTHESES_FILE, read_hypotheses
from normlab.reports.runs import Run
from normlab.reports.tables.comparison import Comparison
from normlab.reports.translations.reference_text import SPLIT, text_of_test

if TYPE_CHECKING:
    from normlab.metrics.bleu import Bootstrap

SCORE = "test/bleu"


def bootstrap(
    baseline: Sequence[Run], other: Sequence[Run], data_dir: Path | None, *, samples: int = 1000
) -> "dict[str, Bootstrap]":
    """Return the test of the difference in BLEU for each paired seed, and for all seeds (`all`).

    If there is only one paired seed, there is no `all`. Raises UserError with the reason if the two
    rows were not trained, tested or computed in the same way, or if translations are missing or
    their BLEU differs from the record.
    """
    from normlab.metrics.bleu import paired_bootstrap, scored_as

    sides = _experiments(baseline, other)
    seeds, way = _comparable(*sides)
    _, references = text_of_test(sides[0].records[0], data_dir)
    how = scored_as(way)
    one, two = (
        {run.key.seed: _scored(run, references, how) for run in runs if run.key.seed in seeds}
        for runs in (baseline, other)
    )
    tested = partial(paired_bootstrap, references=references, samples=samples, **how)
    tests = {str(seed): tested([one[seed]], [two[seed]]) for seed in seeds}
    whole = ([side[seed] for seed in seeds] for side in (one, two))
    return tests | ({"all": tested(*whole)} if len(seeds) > 1 else {})


def _experiments(baseline: Sequence[Run], other: Sequence[Run]) -> tuple[Experiment, Experiment]:
    """Return both rows' runs as experiments. Raise UserError if a finished run has no BLEU."""
    ended = [run.record for run in (*baseline, *other) if run.record and run.record.finished]
    if without := [record.run_id for record in ended if SCORE not in record.scores]:
        raise UserError(f"{without[0]} has no {SCORE}, but the bootstrap compares translations")
    first, second = (
        Experiment.of(run.record for run in runs if run.record) for runs in (baseline, other)
    )
    return first, second


def _comparable(baseline: Experiment, other: Experiment) -> tuple[list[int], str]:
    """Return the paired seeds, and the signature of BLEU.

    Raises UserError with the reason if the rows cannot be compared.
    """
    sides = (baseline, other)
    compared = Comparison.of(other, baseline, UNPLANNED)
    reason = compared.obstacle
    ways = {str(side.signature(SCORE)) for side in sides if side.scores(SCORE)}
    if len(ways) > 1:
        reason = f"{SCORE} was computed in several ways ({', '.join(sorted(ways))})"
    if reason:
        names = " and ".join(side.records[0].run_id for side in sides)
        raise UserError(f"{names} cannot be compared: {reason}")
    return compared.seeds, "".join(ways)


def _scored(run: Run, references: Sequence[str], how: Mapping[str, Any]) -> list[str]:
    """Return a run's translations. Raise UserError unless their BLEU matches the record."""
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
