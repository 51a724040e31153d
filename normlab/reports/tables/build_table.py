"""The table of a study, or of any runs, computed only from the runs' records.

A row is a setting at a point of a grid. For each score it has the mean and the standard deviation
over finished seeds, and the difference from the baseline at the same point, paired by seed, with
its 95 % t interval and p value (Student 1908: valid for two or more seeds if the differences are
normally distributed). Whether translations would differ on other sentences is a separate question,
answered by `normlab compare A B --bootstrap`. Runs that must not be averaged or compared are
refused with a reason; diverged seeds are counted, never dropped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from normlab.errors import UserError
from normlab.metrics.score_text import heading
from normlab.metrics.significance import constant
from normlab.records.grouping import grouped
from normlab.records.pairs import Experiment, PairRules
from normlab.reports.arrangement.arrangement import Arrangement, ArticleValues
from normlab.reports.runs import NOT_RUN, Run, by_setting
from normlab.reports.setting_names import point_name, setting
from normlab.reports.tables.answer import answer
from normlab.reports.tables.comparison import Comparison, best
from normlab.reports.tables.notes import notes_on
from normlab.reports.tables.score_table import Entry, ScoreRow, ScoreTable
from normlab.reports.tables.stability import stability


def build_table(arrangement: Arrangement, names: Mapping[str, str] = {}) -> ScoreTable:
    """Return the table of some runs. `names` are the user's names for scores and axes."""
    rows = [_row(arrangement, seeds, names) for seeds in by_setting(arrangement.runs).values()]
    bases = {row.point: row.experiment for row in rows if row.is_baseline}
    rows = [
        row if row.is_baseline else _compared(row, bases.get(row.point), arrangement.rules)
        for row in rows
    ]
    rows = _with_best(rows, arrangement.columns, arrangement.rules)
    table = ScoreTable(
        _title(arrangement, names),
        _key(arrangement),
        arrangement.columns,
        tuple(rows),
        tuple(notes_on(arrangement, rows)),
        article_heading=_article_heading(arrangement),
        axes=arrangement.axes,
        names=names,
        says_score=_says_score(arrangement),
    )
    table = replace(table, answer=answer(table, arrangement.rows[arrangement.baseline]))
    return table if arrangement.study is not None else table.filled


# The heading of the table -------------------------------------------------------------------------


def _key(arrangement: Arrangement) -> str:
    """Return the name of a table for labels: `batching-small`, `test-bleu-batch-size`, `runs`."""
    if arrangement.study is not None:
        words = [arrangement.study.name, arrangement.scale]
    else:
        score = arrangement.columns[0] if _says_score(arrangement) else "runs"
        words = [score, *arrangement.axes]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def _title(arrangement: Arrangement, names: Mapping[str, str]) -> str:
    """Return the study's title, or a title such as `BLEU by batch size on Multi30k de-en`."""
    data, scale = arrangement.data_name, arrangement.scale
    if (study := arrangement.study) is not None:
        return f"{study.table}, on {data} ({study.name}, scale={scale})"
    (score, *_) = arrangement.columns
    what = names.get(score) or heading(score) if _says_score(arrangement) else "Runs"
    by = " and ".join(names.get(key) or setting(key) for key in arrangement.axes)
    start = f"{what} by {by}" if by else what
    texts = (f"{start} on {data}", f"scale={scale}" if scale else "", arrangement.recipe)
    return ", ".join(filter(None, texts))


def _says_score(arrangement: Arrangement) -> bool:
    """Return whether the title names the score: the only one, over axes that no study planned."""
    only_score = len(arrangement.columns) == 1
    return arrangement.study is None and bool(arrangement.axes) and only_score


def _article_heading(arrangement: Arrangement) -> str:
    """Return the heading of the column with the article's values, or "" if there are none."""
    if arrangement.study is None or not arrangement.article:
        return ""
    return f"article ({arrangement.study.article_data})"


# Its rows -----------------------------------------------------------------------------------------


def _row(arrangement: Arrangement, runs: Sequence[Run], names: Mapping[str, str]) -> ScoreRow:
    """Return a setting's row without differences. If it has no scores, `problem` says why."""
    name, point = runs[0].key.row_and_point
    article = arrangement.article.get(name, ArticleValues())
    row = ScoreRow(
        arrangement.rows[name],
        point,
        {
            score: Entry(score, article_value=article.scores.get(score))
            for score in arrangement.columns
        },
        is_baseline=name == arrangement.baseline,
        article_stability=article.stability,
        at=point_name(point, names),
    )
    records = [run.record for run in runs if run.record is not None]
    if not records:
        state = runs[0].state
        return replace(row, outcome=state, stability=state, problem=state)
    try:
        experiment = Experiment.of(records)
        scores = {score: experiment.scores(score) for score in arrangement.columns}
    except UserError as error:
        why = str(error)
        return replace(row, outcome="refused", stability="refused", refused=True, problem=why)
    unended = [run.state for run in runs if run.record is None]
    outcome = experiment.outcome + (f", {len(unended)} {unended[0]}" if unended else "")
    return replace(
        row,
        entries={score: replace(row.entries[score], scores=scores[score]) for score in scores},
        outcome=outcome,
        stability=stability(experiment, outcome),
        experiment=experiment,
    )


def _compared(row: ScoreRow, base: Experiment | None, rules: PairRules) -> ScoreRow:
    """Return a row with its differences from the baseline at its point, if both have scores."""
    if row.experiment is None or base is None:
        return row
    compared = Comparison.of(row.experiment, base, rules)
    entries: dict[str, Entry] = {}
    for score, entry in row.entries.items():
        by_seed = compared.differences(score)
        entries[score] = replace(
            entry,
            difference=compared.interval(score),
            bare=_bare(by_seed),
            pairs=tuple(by_seed),
        )
    return replace(row, entries=entries, comparison=compared)


def _bare(by_seed: Mapping[int, float]) -> float | None:
    """Return the difference of the only paired seed, or the one that all paired seeds have.

    Returns None if there is no such difference.
    """
    values = [*by_seed.values()]
    return values[0] if values and constant(values) else None


def _with_best(
    rows: Sequence[ScoreRow], columns: Sequence[str], rules: PairRules
) -> list[ScoreRow]:
    """Return the rows with the best row's entry marked, for each score and point.

    A point at which a row was refused or has not ended has no best row. Rows without any run, which
    the table calls `not run`, do not count.
    """
    experiments = grouped((row.point, row.experiment) for row in rows if row.outcome != NOT_RUN)
    tops = {
        (point, column): best(whole, column, rules)
        for point, at_point in experiments.items()
        if len(whole := [each for each in at_point if each is not None]) == len(at_point)
        for column in columns
    }

    def marked(row: ScoreRow, entry: Entry) -> Entry:
        top = tops.get((row.point, entry.score))
        return replace(entry, best=top is not None and top is row.experiment)

    return [
        replace(row, entries={column: marked(row, entry) for column, entry in row.entries.items()})
        for row in rows
    ]
