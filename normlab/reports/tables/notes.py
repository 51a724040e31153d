"""The notes below a table, in order: its data, how to read it, and what limits comparisons.

Some findings about several rows have files of their own, which also make the notes on them:
`data_seen.py`, `untrained.py`, `uncompared.py` and `unlike_settings.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from normlab.records.code import same_code
from normlab.records.grouping import grouped
from normlab.records.pairs import Experiment
from normlab.records.record import RunRecord
from normlab.reports.arrangement.arrangement import Arrangement
from normlab.reports.legend import About, Note
from normlab.reports.tables.comparison import SEEDS_TO_DECIDE
from normlab.reports.tables.data_seen import data_seen
from normlab.reports.tables.score_table import ScoreRow
from normlab.reports.tables.uncompared import Uncompared
from normlab.reports.tables.unlike_settings import UnlikeSetting, unlike_settings
from normlab.reports.tables.untrained import Untrained

_BEST = (
    "{mark}: better than every other row at its point, p below 0.05 after Holm over all pairs of "
    f"rows; all rows have {SEEDS_TO_DECIDE} seeds or more, all of them finished and clearly better "
    "than the untrained baseline, and the two runs of each pair have the same code"
)
_VALUES = (
    "mean +- standard deviation over the seeds that finished; {place} the difference from "
    "{baseline}{at}, paired by seed, with its 95 % t interval and p value, not corrected for "
    "multiple comparisons"
)
_FUTURE = (
    "a norm shows these models the tokens that they predict, so that their losses and scores are "
    "no language model's"
)


def notes_on(arrangement: Arrangement, rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield the notes on a table, in a fixed order."""
    records = [record for row in rows for record in row.records]
    refused = [Note(f"{row.label}: {row.problem}") for row in rows if row.refused]
    experiments = {row.label: row.experiment for row in rows if row.experiment}
    if not records:
        yield from refused or [Note("no run has ended")]
        return
    yield _note_on_runs(records)
    if (amounts := data_seen(rows)) is not None:
        yield amounts.note
    yield from _how_to_read(arrangement, rows, experiments)
    yield from Untrained.of(experiments, arrangement.columns).notes
    yield from _models_that_see_the_future(experiments)
    if arrangement.study is not None and arrangement.article:
        text = f"article: what {arrangement.study.article} says, at its own size and data"
        yield Note(text, about=About.ARTICLE)
    yield from _states_of_code(records, rows)
    yield from refused
    yield from _uncompared(arrangement, rows)
    yield from _unlike_settings(arrangement, rows)
    yield from _smoothed_loss(records, arrangement.columns)
    yield from _how_scored(experiments, arrangement.columns)


def _note_on_runs(records: Sequence[RunRecord]) -> Note:
    """Return the note on the runs' data, precisions, devices and numbers of updates."""
    facts = [
        (record.data.get("label"), *map(record.environment.get, ("precision", "device")))
        for record in records
    ]
    sources, precisions, devices = (
        ", ".join(sorted(set(map(str, values)))) for values in zip(*facts, strict=True)
    )
    steps = sorted({record.budget.steps for record in records if record.finished})
    several = " or ".join(f"{n:,}" for n in steps)
    updates = f"{steps[0]:,} to {steps[-1]:,}" if len(steps) > 3 else several
    length = f"{updates} updates" if steps else "no run finished"
    return Note(f"data: {sources}; {precisions} on {devices}; {length}", about=About.DATA)


def _how_to_read(
    arrangement: Arrangement, rows: Sequence[ScoreRow], experiments: Mapping[str, Experiment]
) -> Iterator[Note]:
    """Yield notes on which weights were tested, what values and stars mean, and what decides."""
    records = [record for each in experiments.values() for record in each.records]
    if weights := sorted({_weights(record) for record in records if record.finished} - {""}):
        yield Note(f"tested: {', or '.join(weights)}", about=About.TESTED)
    at = " at the same point" if any(row.point for row in rows) else ""
    fewest, most = (pick(len(each.records) for each in experiments.values()) for pick in (min, max))
    in_brackets, in_second_table = (
        _VALUES.format(place=place, baseline=arrangement.baseline, at=at)
        for place in ("in brackets", "in the second table")
    )
    yield Note(
        in_brackets,
        "+-: standard deviation over seeds; [ ]: 95 % interval" if most > 1 else "",
        About.VALUES,
        in_second_table,
    )
    if any(entry.best for row in rows for entry in row.entries.values()):
        brief = "*: better than every other row, p < 0.05 after Holm"
        yield Note(_BEST.format(mark="bold"), brief, About.BOLD, _BEST.format(mark="*"))
    if arrangement.study is not None and arrangement.study.is_pilot:
        yield Note("a pilot: it decides nothing", "a pilot: it decides nothing", About.SEEDS)
    elif fewest < SEEDS_TO_DECIDE:
        few_seeds = f"rows with fewer than {SEEDS_TO_DECIDE} seeds decide nothing"
        yield Note(f"{few_seeds} (fewest: {fewest})", few_seeds, About.SEEDS)


def _weights(record: RunRecord) -> str:
    """Return which weights of a run were tested."""
    if record.weights:
        averaged = "average" in record.weights
        return "the mean of the last validations" if averaged else "the last weights"
    by = (record.config.get("validate") or {}).get("select_by")
    return f"the weights of the best valid/{by}, not the last" if by else ""


def _models_that_see_the_future(rows: Mapping[str, Experiment]) -> Iterator[Note]:
    """Yield a note on the rows whose models can see the tokens that they predict."""
    norms = {k: {norm for r in row.records for norm in r.sees_future} for k, row in rows.items()}
    if leaking := [f"{row} ({', '.join(sorted(its))})" for row, its in norms.items() if its]:
        text = f"sees the future: {'; '.join(leaking)}: {_FUTURE}"
        yield Note(text, "models that see the future")


def _states_of_code(records: Sequence[RunRecord], rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield a note if seeds ran different states of the code."""
    if not all(same_code(a.made_by, b.made_by) for a, b in combinations(records, 2)):
        compared = [(row.label, row.comparison) for row in rows if row.comparison is not None]
        mixed = [label for label, comparison in compared if not comparison.has_one_code]
        among = f"except {'; '.join(mixed)}" if mixed else "in every row"
        text = "it differs between seeds; the two runs of a pair share it"
        yield Note(f"code: {text} {among}", about=About.CODE)


def _uncompared(arrangement: Arrangement, rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield a note on rows that are not compared with the baseline, or only on some seeds."""
    uncompared = Uncompared.of(rows)
    if uncompared.rows:
        baseline = arrangement.baseline
        in_sentence = arrangement.rows[baseline].in_sentence
        code = "data, code, hardware and precision"
        shared = code if arrangement.rules.code else "hardware and precision"
        yield uncompared.note(baseline, in_sentence, shared)


def _unlike_settings(arrangement: Arrangement, rows: Sequence[ScoreRow]) -> Iterator[Note]:
    """Yield notes on the settings in which rows at a point differ, if no study planned them."""
    if arrangement.study is not None:
        return
    unlike: dict[str, UnlikeSetting] = {}
    keys = {row: name.keys for row, name in arrangement.rows.items()}
    for point in dict.fromkeys(row.point for row in rows):
        at_point = {
            row.name: row.experiment for row in rows if row.point == point and row.experiment
        }
        unlike |= unlike_settings(at_point, arrangement.axes, keys)
    yield from (each.note for each in unlike.values())


def _smoothed_loss(records: Sequence[RunRecord], scores: Sequence[str]) -> Iterator[Note]:
    """Yield a note that the loss includes label smoothing, if the table has the perplexity."""
    smoothing = max(record.label_smoothing for record in records)
    if smoothing and {"loss", "perplexity"} <= {score.rpartition("/")[2] for score in scores}:
        yield Note.short(f"loss includes label smoothing {smoothing:g}, perplexity does not")


def _how_scored(rows: Mapping[str, Experiment], scores: Sequence[str]) -> Iterator[Note]:
    """Yield a note on how the scores were computed, by row if the rows differ."""
    methods: list[tuple[str, str]] = []
    for score in scores:
        signed = ((label, row.signature(score)) for label, row in rows.items())
        ways = grouped((way, label) for label, way in signed if way is not None)
        for way, labels in ways.items():
            methods.append((way, score + (f" ({', '.join(labels)})" if len(ways) > 1 else "")))
    if methods:
        ways = [f"{', '.join(names)} {way}" for way, names in grouped(methods).items()]
        yield Note(f"scored by: {'; '.join(ways)}", about=About.SIGNATURE)
