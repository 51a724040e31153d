"""The notes below a table: its data, how to read it, what is unlike, and what is not compared."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from normlab.formats import rounded_count
from normlab.metrics.baseline import (
    CLEAR,
    NOT_CLEAR,
    ON_PLATEAU,
    PLATEAU,
    at_baseline,
    is_near_baseline,
    on_plateau,
)
from normlab.metrics.score_text import score_text
from normlab.records.code import same_code
from normlab.records.grouping import grouped
from normlab.records.pairs import Experiment
from normlab.records.record import RunRecord
from normlab.reports.arrangement.differing_settings import not_alike
from normlab.reports.arrangement.table_runs import TableRuns
from normlab.reports.legend import About, Note
from normlab.reports.setting_names import setting
from normlab.reports.tables.comparison import SEEDS_TO_DECIDE
from normlab.reports.tables.score_table import ScoreRow

_ROWS_LISTED = 3  # if a brief note is about more rows, it only counts them
_SAME_TEXT = 1.1  # amounts of data count as equal up to this ratio
BOLD = (
    "bold: better than every other row at its point, p below 0.05 after Holm over all pairs of "
    f"rows; all rows have {SEEDS_TO_DECIDE} seeds or more, all of them finished and clearly better "
    "than the untrained baseline, and the two runs of each pair have the same code"
)


def notes_on(table: TableRuns, rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield the notes on a table, in a fixed order."""
    records = [record for row in rows for record in row.records]
    refused = [f"{row.label}: {row.problem}" for row in rows if row.refused]
    experiments = {row.label: row.experiment for row in rows if row.experiment}
    if not records:
        yield from map(Note, refused or ["no run has ended"])
        return
    yield Note(_made_of(records), about=About.DATA)
    yield from _text_seen(rows)
    yield from _how_to_read(table, rows)
    yield from _untrained(experiments, table.columns)
    for text in _future_note(experiments):
        yield Note(text, "models that see the future")
    if table.study is not None and any(table.article_values.values()):
        text = f"article: what {table.study.article} says, at its own size and data"
        yield Note(text, about=About.ARTICLE)
    yield from _states_of_code(rows)
    yield from map(Note, refused)
    yield from _differences(table, rows)
    yield from _unlike_rows(table, rows)
    smoothing = max(record.label_smoothing for record in records)
    names = {column.rpartition("/")[2] for column in table.columns}
    if smoothing and {"loss", "perplexity"} <= names:
        text = f"loss includes label smoothing {smoothing:g}, perplexity does not"
        yield Note.short(text)
    for text in _scored_by(experiments, table.columns):
        yield Note(text, about=About.SIGNATURE)


def _how_to_read(table: TableRuns, rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield which weights were tested, what the values and stars mean, and what decides."""
    records = [record for row in rows for record in row.records]
    experiments = {row.label: row.experiment for row in rows if row.experiment}
    if weights := sorted({_weights(record) for record in records if record.finished} - {""}):
        yield Note(f"tested: {', or '.join(weights)}", about=About.TESTED)
    at = " at the same point" if any(row.point for row in rows) else ""
    several = any(len(each.records) > 1 for each in experiments.values())
    yield Note(
        "mean +- standard deviation over the seeds that finished; in brackets the difference "
        f"from {table.baseline}{at}, paired by seed, with its 95 % t interval and p value, not "
        "corrected for multiple comparisons",
        "+-: standard deviation over seeds; [ ]: 95 % interval" if several else "",
        About.VALUES,
    )
    if any(entry.best for row in rows for entry in row.entries.values()):
        yield Note(BOLD, "*: better than every other row, p < 0.05 after Holm", About.BOLD)
    few = min(len(each.records) for each in experiments.values())
    if table.is_pilot:
        yield Note("a pilot: it decides nothing", "a pilot: it decides nothing", About.SEEDS)
    elif few < SEEDS_TO_DECIDE:
        few_seeds = f"rows with fewer than {SEEDS_TO_DECIDE} seeds decide nothing"
        yield Note(f"{few_seeds} (fewest: {few})", few_seeds, About.SEEDS)


def _states_of_code(rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield a note if seeds ran different states of the code."""
    records = [record for row in rows for record in row.records]
    if not all(same_code(a.made_by, b.made_by) for a, b in combinations(records, 2)):
        compared = [(row.label, row.comparison) for row in rows if row.comparison is not None]
        mixed = [label for label, comparison in compared if not comparison.has_one_code]
        among = f"except {'; '.join(mixed)}" if mixed else "in every row"
        text = "it differs between seeds; the two runs of a pair share it"
        yield Note(f"code: {text} {among}", about=About.CODE)


def _unlike_rows(table: TableRuns, rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield the settings in which the rows at a point differ, if no study planned them."""
    if table.study is not None:
        return
    differing: dict[str, str] = {}
    keys = {row: name.keys for row, name in table.rows.items()}
    for point in dict.fromkeys(row.point for row in rows):
        at_point = {
            row.name: row.experiment for row in rows if row.point == point and row.experiment
        }
        differing |= not_alike(at_point, table.axes, keys)
    for key, text in differing.items():
        yield Note(text, f"rows differ in {setting(key)}", About.NOT_ALIKE)


def _text_seen(rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield whether rows saw equal amounts of data, if their updates or amounts differ."""
    ended = {
        row.label: [r for r in row.records if r.finished]
        for row in rows
        if any(record.finished for record in row.records)
    }
    if not ended:
        return
    tokens = {label: fmean(r.budget.tokens for r in finished) for label, finished in ended.items()}
    steps = {label: fmean(r.budget.steps for r in finished) for label, finished in ended.items()}
    units = {record.unit for finished in ended.values() for record in finished}
    if len(units) > 1:  # tokens and images cannot be compared
        return
    (unit,) = units
    least, most = min(tokens, key=lambda k: tokens[k]), max(tokens, key=lambda k: tokens[k])
    if tokens[most] <= _SAME_TEXT * tokens[least]:
        if max(steps.values()) > _SAME_TEXT * min(steps.values()):
            yield Note(
                f"equal {unit}: about {rounded_count(fmean(tokens.values()))} in each run's "
                "training"
            )
        return
    budgets = {_budget_spent(record) for finished in ended.values() for record in finished}
    if len(budgets) == 1 and (budget := budgets.pop()) is not None:
        yield Note(
            f"equal {unit}: {budget:,} in each run's training, and the rest of its last batch, up "
            f"to {rounded_count(tokens[most])} with {most}"
        )
        return
    equal = "in equal updates, " if len({*steps.values()}) == 1 else ""
    times = tokens[most] / tokens[least] if tokens[least] else math.inf
    yield Note(
        f"UNEQUAL {unit}: {equal}{least} was trained on {rounded_count(tokens[least])} and {most} "
        f"on {rounded_count(tokens[most])}, {times:.1f} times as many; steps=null budget.tokens=N "
        "(or epochs=N) trains all on equal amounts",
        f"UNEQUAL {unit}, up to {times:.1f} times as many",
    )


def _budget_spent(record: RunRecord) -> int | None:
    """Return the budget of tokens (or samples) that ended a run; None if it ended otherwise."""
    budget = record.config.get("budget")
    if record.outcome.reason != "tokens" or not isinstance(budget, Mapping):
        return None
    tokens = budget.get("tokens")
    return tokens if isinstance(tokens, int) else None


def _untrained(rows: Mapping[str, Experiment], columns: Sequence[str]) -> Iterator[Note]:
    """Yield notes on each score's untrained baseline and the rows that do not clearly beat it."""
    baselines: list[str] = []
    low: list[str] = []
    for column in columns:
        name = column.rpartition("/")[2]
        records = [record for row in rows.values() for record in row.records]
        scored = [r for r in records if name in r.floors and column in r.scores]
        if known := [record.floors[name] for record in scored]:
            bounds = dict.fromkeys(score_text(value, column) for value in (min(known), max(known)))
            baselines.append(f"{column} {' to '.join(bounds)}")
        ended = {k: [r for r in row.records if r.finished] for k, row in rows.items()}
        if near := [label for label, its in ended.items() if at_baseline(its, column)]:
            low.append(
                f"{column} ({'; '.join(near) if len(near) < max(2, len(ended)) else 'all rows'})"
            )
    if baselines or low:
        text = f"untrained baseline: {', '.join(baselines) or 'not of these scores'}"
        yield Note(text, about=About.BASELINE)
    near = {label: sum(map(is_near_baseline, row.records)) for label, row in rows.items()}
    runs = [f"{label} ({n}/{len(rows[label].records)} runs)" for label, n in near.items() if n]
    if low:
        text = f"{NOT_CLEAR} ({CLEAR}), so a difference says nothing: {'; '.join(low)}"
        yield Note(
            text, "some scores are near the untrained baseline and say nothing", About.NOT_CLEAR
        )
    elif runs:
        which = "; ".join(runs)
        brief = f"near the untrained baseline: {which}"
        yield Note(f"{NOT_CLEAR} ({CLEAR}): {which}", brief, About.NOT_CLEAR)
    if any(on_plateau(record) for row in rows.values() for record in row.records):
        yield Note(f"{ON_PLATEAU}: {PLATEAU}")


def _differences(table: TableRuns, rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield a note on rows that are not compared with the baseline, or only on some seeds."""
    reasons: list[tuple[str, str]] = []
    incomparable: list[str] = []
    compared = [(row, row.comparison) for row in rows if row.comparison is not None]
    for row, comparison in compared:
        if comparison.obstacle:
            text = f"not compared with {table.baseline}, {comparison.obstacle}"
            reasons.append((text, row.label))
            incomparable.append(row.in_sentence)
        elif not comparison.pairs_all_runs:
            seeds = " ".join(map(str, comparison.seeds))
            reasons.append((f"only seeds {seeds} are pairs", row.label))
    shared = "data, code, hardware and precision" if table.rules.code else "hardware and precision"
    if text := "; ".join(
        f"{what} ({'; '.join(labels)})" for what, labels in grouped(reasons).items()
    ):
        text = f"differences: {text}; the two runs of a pair have the same seed, {shared}"
        listed = "; ".join(incomparable)
        baseline = table.rows[table.baseline].in_sentence
        many = f"{len(incomparable)} rows are not compared with {baseline}"
        brief = (
            many
            if len(incomparable) > _ROWS_LISTED
            else f"not compared: {listed}"
            if incomparable
            else ""
        )
        yield Note(text, brief, About.OTHER if incomparable else About.PAIRS)


def _made_of(records: Sequence[RunRecord]) -> str:
    """Return a note on the runs' data, precisions, devices and numbers of updates."""
    facts = [
        (record.data.get("label"), *map(record.environment.get, ("precision", "device")))
        for record in records
    ]
    sources, precisions, devices = (
        ", ".join(sorted(set(map(str, values)))) for values in zip(*facts, strict=True)
    )
    steps = sorted({record.budget.steps for record in records if record.finished})
    several = " or ".join(f"{n:,}" for n in steps) or "no"
    updates = f"{steps[0]:,} to {steps[-1]:,}" if len(steps) > 3 else several
    return f"data: {sources}; {precisions} on {devices}; {updates} updates"


def _weights(record: RunRecord) -> str:
    """Return which weights of a run were tested."""
    if record.weights:
        averaged = "average" in record.weights
        return "the mean of the last validations" if averaged else "the last weights"
    by = (record.config.get("validate") or {}).get("select_by")
    return f"the weights of the best valid/{by}, not the last" if by else ""


def _future_note(rows: Mapping[str, Experiment]) -> list[str]:
    """Return a note on the rows whose models can see the tokens that they predict."""
    norms = {k: {norm for r in row.records for norm in r.sees_future} for k, row in rows.items()}
    texts = [f"{label} ({', '.join(sorted(its))})" for label, its in norms.items() if its]
    which = "; ".join(texts)
    reason = "a norm shows these models the tokens that they predict, so that their losses and "
    return [f"sees the future: {which}: {reason}scores are no language model's"] if which else []


def _scored_by(rows: Mapping[str, Experiment], scores: Sequence[str]) -> list[str]:
    """Return a note on how the scores were computed, by row if the rows differ."""
    methods: list[tuple[str, str]] = []
    for score in scores:
        signed = ((label, row.signature(score)) for label, row in rows.items())
        ways = grouped((way, label) for label, way in signed if way is not None)
        for way, labels in ways.items():
            methods.append((way, score + (f" ({', '.join(labels)})" if len(ways) > 1 else "")))
    text = "; ".join(f"{', '.join(names)} {way}" for way, names in grouped(methods).items())
    return [f"scored by: {text}"] if text else []
