"""The table of a study, or of any runs, computed only from the runs' records.

A row is a setting at a point of a grid. For each score it has the mean and the standard deviation
over finished seeds, and the difference from the baseline at the same point, paired by seed, with
its 95 % t interval and p value (Student 1908: valid from two seeds on if differences are normal).
Whether translations would differ on other sentences is a separate question, answered by `normlab
compare A B --bootstrap`. Runs that must not be averaged or compared are refused with a reason;
diverged seeds are counted, never dropped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from normlab.errors import UserError
from normlab.metrics.baseline import NOT_CLEAR, ON_PLATEAU, is_near_baseline, on_plateau
from normlab.metrics.score_text import heading
from normlab.records.grouping import grouped
from normlab.records.pairs import Experiment, PairRules
from normlab.records.store import SPIKE_COUNT
from normlab.reports.arrangement.table_runs import TableRuns
from normlab.reports.runs import Run, by_setting
from normlab.reports.setting_names import point_name, setting
from normlab.reports.tables.answer import answer
from normlab.reports.tables.comparison import Comparison, best, count_diverged
from normlab.reports.tables.notes import notes_on
from normlab.reports.tables.score_table import Entry, ScoreRow, ScoreTable
from normlab.studies.study import STATEMENT


def build_table(of: TableRuns, names: Mapping[str, str] = {}) -> ScoreTable:
    """Return the table of some runs; `names` are the user's names of scores and axes."""
    rows = [_row(of, members, names) for members in by_setting(of.runs).values()]
    bases = {row.point: row.experiment for row in rows if row.is_baseline}
    rows = [
        row if row.is_baseline else _compared(row, bases.get(row.point), of.rules) for row in rows
    ]
    rows = _with_best(rows, of)
    title = _title_of_study(of) if of.study is not None else _title_of_runs(of, names)
    notes = tuple(notes_on(of, rows))
    table = ScoreTable(title, _key(of), of.columns, tuple(rows), notes, axes=of.axes)
    sentence = answer(table, of.rows[of.baseline])
    if of.study is None:
        table = replace(table, says_score=_says_score(of)).filled
    elif any(of.article_values.values()):
        table = replace(table, article_heading=f"article ({of.study.article_data})")
    return replace(table, answer=sentence, names=names)


def _key(of: TableRuns) -> str:
    """Return the name of a table for labels: `batching-small`, `test-bleu-batch-size`, `runs`."""
    if of.study is not None:
        words = [of.study.name, of.scale]
    else:
        words = [of.columns[0] if _says_score(of) else "runs", *of.axes]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def _title_of_study(of: TableRuns) -> str:
    assert of.study is not None
    return f"{of.study.table}, on {of.data_name} ({of.study.name}, scale={of.scale})"


def _title_of_runs(of: TableRuns, names: Mapping[str, str]) -> str:
    """Return such as `BLEU by batch size on Multi30k de-en, scale=small`."""
    (score, *_) = of.columns
    what = names.get(score) or heading(score) if _says_score(of) else "Runs"
    by = " and ".join(names.get(key) or setting(key) for key in of.axes)
    start = f"{what} by {by}" if by else what
    scale = f"scale={of.scale}" if of.scale else ""
    return ", ".join(filter(None, [f"{start} on {of.data_name}", scale, of.recipe]))


def _says_score(of: TableRuns) -> bool:
    """Return whether the title names the score, which is the only one, over the axes."""
    return of.study is None and bool(of.axes) and len(of.columns) == 1


def _row(of: TableRuns, runs: Sequence[Run], names: Mapping[str, str]) -> ScoreRow:
    """Return a setting's row, without differences; if it has no scores, `problem` says why."""
    name, point = runs[0].key.row_and_point
    article = of.article_values.get(name, {})
    entries = {column: Entry(column, article_value=article.get(column)) for column in of.columns}
    row = ScoreRow(
        of.rows[name],
        point,
        entries,
        is_baseline=name == of.baseline,
        article_stability=article.get(STATEMENT),
        at=point_name(point, names),
    )
    records = [run.record for run in runs if run.record is not None]
    if not records:
        state = runs[0].state
        return replace(row, outcome=state, stability=state, problem=state)
    try:
        experiment = Experiment.of(records)
        entries = {k: replace(entry, scores=experiment.scores(k)) for k, entry in entries.items()}
    except UserError as error:
        refused = {"outcome": "refused", "stability": "refused", "refused": True}
        return replace(row, **refused, problem=str(error))
    others = [run.state for run in runs if run.record is None]
    outcome = experiment.outcome + (f", {len(others)} {others[0]}" if others else "")
    trained = "; ".join([outcome, *_how_trained(experiment)])
    return replace(row, entries=entries, outcome=outcome, stability=trained, experiment=experiment)


def _how_trained(experiment: Experiment) -> list[str]:
    """Return how stable the training of a row's seeds was, and what is wrong with their scores."""
    diverged = [] if count_diverged(experiment.records) else ["diverged 0"]
    spikes = _spikes(experiment)
    counted = "spikes not counted" if spikes is None else f"spikes {spikes:g}"
    return [*diverged, *_warnings_on(experiment), counted]


def _warnings_on(row: Experiment) -> list[str]:
    """Return warnings on a row: how many runs are near the baseline, and `sees the future`."""
    count = sum(map(is_near_baseline, row.records))
    warnings = [f"{count}/{len(row.records)} {NOT_CLEAR}"] if count else []
    if stuck := sum(map(on_plateau, row.records)):
        warnings.append(f"{stuck}/{len(row.records)} {ON_PLATEAU}")
    return [*warnings, "sees the future"] if any(r.sees_future for r in row.records) else warnings


def _spikes(experiment: Experiment) -> float | None:
    """Return the median number of loss spikes of a run; None if no run counted them."""
    counts = [r.stability[SPIKE_COUNT] for r in experiment.records if SPIKE_COUNT in r.stability]
    return median(counts) if counts else None


def ended_in_brief(row: ScoreRow) -> str:
    """Return how a row's seeds ended, in short: `3/3`, `2/3, 1 diverged, spikes 4`."""
    if row.experiment is None:
        return row.outcome
    parts = [f"{sum(record.finished for record in row.records)}/{len(row.records)}"]
    if diverged := count_diverged(row.records):
        parts.append(f"{diverged} diverged")
    if spikes := _spikes(row.experiment):
        parts.append(f"spikes {spikes:g}")
    return ", ".join(parts)


def _compared(row: ScoreRow, base: Experiment | None, rules: PairRules) -> ScoreRow:
    """Return a row with its differences from the baseline at its point, if both have scores."""
    if row.experiment is None or base is None:
        return row
    compared = Comparison.of(row.experiment, base, rules)
    entries = {
        column: replace(
            entry,
            difference=compared.interval(column),
            bare=_bare(compared.differences(column)),
        )
        for column, entry in row.entries.items()
    }
    return replace(row, entries=entries, comparison=compared)


def _bare(by_seed: Mapping[int, float]) -> float | None:
    """Return the difference of the only paired seed; None unless exactly one seed is paired."""
    return next(iter(by_seed.values())) if len(by_seed) == 1 else None


def _with_best(rows: Sequence[ScoreRow], of: TableRuns) -> list[ScoreRow]:
    """Return the rows, with the entry of the best row at each point marked, for each score."""
    experiments = grouped((row.point, row.experiment) for row in rows if row.experiment)
    tops = {
        (point, column): best(at_point, column, of.rules)
        for point, at_point in experiments.items()
        for column in of.columns
    }

    def marked(row: ScoreRow, entry: Entry) -> Entry:
        top = tops.get((row.point, entry.score))
        return replace(entry, best=top is not None and top is row.experiment)

    return [
        replace(row, entries={column: marked(row, entry) for column, entry in row.entries.items()})
        for row in rows
    ]
