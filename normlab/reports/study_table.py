"""The table of a study, or of any runs: a pure function of the study and the records of its runs.

A row is a setting at a point of the study's grid. For each score it has the mean over the seeds
that finished with its spread, and the difference to the first row at the same point, paired by
seed, with its 95 % t interval and p value (Student 1908: right for as few seeds as two, if
differences are normal). Whether translations would differ on other sentences is another question,
which `normlab compare A B --bootstrap` answers. The title names the data of the numbers; what a
document says of other data is in a column of its own, and no difference to it is made. Runs that
must not be averaged or compared are refused with the reason, and seeds that diverged are counted,
never dropped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from normlab.metrics.spread import accuracy_interval, at_baseline, learned
from normlab.records.aggregate import Cell
from normlab.records.pairs import code_remark, diff
from normlab.records.record import RunRecord
from normlab.records.store import SPIKE_COUNT
from normlab.reports.comparison import (
    FOUND,
    SEEDS_TO_DECIDE,
    Rules,
    best,
    difference,
    diverged_seeds,
    future_note,
    higher_is_better,
    marks,
    not_alike,
    one_code,
    pairs,
    scored_by,
    values,
)
from normlab.reports.runs import NOT_ENDED, NOT_MADE, Absent
from normlab.reports.table import Entry, Row, Table, figure
from normlab.studies import STABILITY, Planned, Study

BOLD = (
    "bold: better than every other row at its point, p below 0.05 after Holm over all pairs of "
    f"rows; all rows have {SEEDS_TO_DECIDE} seeds or more, all of them finished and clear of the "
    "untrained baseline, and the two runs of each pair have the same code"
)
_OWN_DATA = "A"  # the grade of a scale that is the document's own data and size
_STEPS_SHOWN = 3
_Place = tuple[str, str]
"""A point and a row."""


def build(
    study: Study,
    scale: str,
    runs: Iterable[tuple[Planned, RunRecord | None]],
    *,
    found: bool = False,
) -> Table:
    """Return the table of a study from its runs, or of runs that were `found`, without a plan."""
    groups: dict[_Place, list[RunRecord | None]] = {}
    for planned, record in runs:
        groups.setdefault((planned.point, planned.row), []).append(record)
    named = [each for row in study.rows.values() for each in row]
    rules = Rules(precision=not any(each.startswith("precision=") for each in named))
    absent = NOT_ENDED if found else NOT_MADE
    cells = {place: _cell(members, study.columns, absent) for place, members in groups.items()}
    whole = {place: cell for place, cell in cells.items() if isinstance(cell, Cell)}
    made = _Made(study, scale, whole, FOUND if found else rules, absent)
    marked = made.best()
    rows = [made.row(place, cells[place], len(own), marked) for place, own in groups.items()]
    size = study.scales.get(scale)
    own_data = size is not None and size.grade == _OWN_DATA
    notes, details = made.notes(rows)
    data = data_name(study, scale, made.records)
    title = f"{study.table}, on {data} ({study.name}, scale={scale})"
    if found:
        title = f"{study.table} on {data}{scale and f', scale={scale}'}"
    apart = any(study.figures.values()) and not own_data
    return Table(
        title=title,
        columns=study.columns,
        rows=tuple(rows),
        notes=tuple(notes),
        details=tuple(details),
        apart=f"document ({study.document_data})" if apart else "",
    )


def data_name(study: Study, scale: str, records: Sequence[RunRecord]) -> str:
    """Name the data of the numbers: as the study does if the records agree."""
    named = study.scales[scale].data_name if scale in study.scales else ""
    labels: dict[str, None] = {}
    for data in (record.data for record in records):
        name = data.get("label") or data.get("source") or "data that is not named"
        labels[f"{name} {'-'.join(data.get('languages') or ())}".strip()] = None
    if named and all(label.split()[0].lower() in named.lower() for label in labels):
        return named
    return ", ".join(labels) or "no data"


def _cell(
    members: Sequence[RunRecord | None], columns: Sequence[str], absent: Absent
) -> Cell | str:
    """Join the seeds of a row, or say why they cannot be joined."""
    records = [record for record in members if record is not None]
    if not records:
        return absent.alone
    for record in records[1:]:
        if record.fingerprint != records[0].fingerprint:
            apart = ", ".join(diff(records[0].config, record.config))
            return f"{records[0].run_id} and {record.run_id} differ in {apart}"
    try:
        cell = Cell.of(records)
        for column in columns:
            cell.score(column)
    except ValueError as error:
        return str(error)
    return cell


def _label(place: _Place) -> str:
    return " ".join(reversed(place)).strip()


@dataclass(frozen=True)
class _Made:
    """The joined seeds of a table, by which its rows and notes are made."""

    study: Study
    scale: str
    cells: Mapping[_Place, Cell]
    rules: Rules
    absent: Absent

    @property
    def records(self) -> list[RunRecord]:
        return [record for cell in self.cells.values() for record in cell.records]

    def baseline(self, place: _Place) -> Cell | None:
        """Return the baseline at the point of a row; None for the baseline itself."""
        first = self.study.baseline
        return None if place[1] == first else self.cells.get((place[0], first))

    def best(self) -> set[tuple[_Place, str]]:
        """Return place and column of each score that is better than all others at its point."""
        found: set[tuple[_Place, str]] = set()
        for point in dict.fromkeys(point for point, _ in self.cells):
            here = {place: cell for place, cell in self.cells.items() if place[0] == point}
            for column in self.study.columns:
                at = best([*here.values()], column, rules=self.rules)
                if at is not None:
                    found.add(([*here][at], column))
        return found

    def row(
        self, place: _Place, cell: Cell | str, planned: int, marked: set[tuple[_Place, str]]
    ) -> Row:
        """Return a row; `cell` may be the reason why it has no scores."""
        point, name = place
        columns, said = self.study.columns, self.study.figures.get(name, {})
        if isinstance(cell, str):
            entries = {column: Entry(document=said.get(column)) for column in columns}
            outcome = cell if cell == self.absent.alone else "refused"
            return Row(name, point, outcome, (), entries, cell, outcome, said.get(STABILITY))
        base = self.baseline(place)
        entries = {
            column: Entry(
                summary=cell.score(column),
                values=values(cell, column),
                higher_is_better=higher_is_better(cell, column),
                document=said.get(column),
                difference=base and difference(cell, base, column, rules=self.rules),
                best=(place, column) in marked,
            )
            for column in columns
        }
        missing = planned - len(cell.records)
        outcome = cell.outcome + (f", {missing} {self.absent.among}" if missing else "")
        spikes = [r.stability[SPIKE_COUNT] for r in cell.records if SPIKE_COUNT in r.stability]
        counted = f"spikes {median(spikes):g}" if spikes else "spikes not counted"
        diverged = [] if "diverged" in outcome else [f"diverged {diverged_seeds(cell)}"]
        ended = [outcome, *diverged, *marks(cell), counted]
        if self.rules is FOUND and (speed := cell.tokens_per_second()) is not None:
            ended.append(f"{speed.mean:,.0f} {cell.records[0].unit}/s")
        stability, says = "; ".join(ended), said.get(STABILITY)
        return Row(name, point, outcome, cell.seeds, entries, stability=stability, said=says)

    def notes(self, rows: Sequence[Row]) -> tuple[list[str], list[str]]:
        """Return the notes of a table, and further ones for the study's page, in a fixed order."""
        study, records = self.study, self.records
        refused = [f"{r.label}: {r.problem}" for r in rows if r.problem not in (None, r.outcome)]
        if not records:
            return refused or ["no run has ended"], []
        bold = any(entry.best for row in rows for entry in row.entries.values())
        labelled = {_label(place): cell for place, cell in self.cells.items()}
        notes = [
            _made_of(records),
            *_tested(records),
            "mean +- standard deviation over the seeds that finished; in brackets the difference "
            f"to {study.baseline} at the same point, paired by seed, with its 95 % t interval and "
            "p value, not corrected for multiple comparisons",
            *([BOLD] if bold else []),
            *self._few(),
            *self._untrained(),
            *future_note(labelled),
            *([] if any(record.finished for record in records) else ["no run has finished"]),
        ]
        if any(study.figures.values()):
            notes.append(f"document: what {study.document} says, at its own size and data")
        notes += [*self._code(), *refused, *self._differences(), *self._not_alike()]
        notes += scored_by(labelled, study.columns)
        flat = any(learned(record) is False for record in records)
        details = [
            *([] if bold else [BOLD.replace("bold:", "nothing is bold, which takes:", 1)]),
            "stability: how the seeds ended, how many diverged, and the median of their loss "
            "spikes",
            *(["did not learn: finished no better than the untrained baseline"] if flat else []),
            *self._rates(rows),
            *self._intervals(),
        ]
        return notes, details

    def _few(self) -> list[str]:
        """Say that a table decides nothing, and why."""
        size = self.study.scales.get(self.scale)
        if size is not None and size.pilot:
            return ["a pilot: it decides nothing"]
        few = min(len(cell.seeds) for cell in self.cells.values())
        said = f"rows of fewer than {SEEDS_TO_DECIDE} seeds decide nothing (fewest: {few})"
        return [said] if few < SEEDS_TO_DECIDE else []

    def _untrained(self) -> list[str]:
        """Return the untrained baseline of each score, and the rows that are not clear of it."""
        found: list[str] = []
        low: list[str] = []
        for column in self.study.columns:
            name = column.rpartition("/")[2]
            known = [
                r.floors[name] for r in self.records if name in r.floors and column in r.scores
            ]
            if known:
                bounds = dict.fromkeys(figure(value, column) for value in (min(known), max(known)))
                found.append(f"{column} {' to '.join(bounds)}")
            own = [
                _label(place)
                for place, cell in self.cells.items()
                if at_baseline([r for r in cell.records if r.finished], column) is not None
            ]
            if own:
                low.append(f"{column} ({'; '.join(own)})")
        if not found and not low:
            return []
        clear = f"; not clear of it, so a difference says nothing: {'; '.join(low)}" if low else ""
        return [f"untrained baseline: {', '.join(found) or 'not of these scores'}{clear}"]

    def _code(self) -> list[str]:
        """Say that the runs have different code, and whether pairs share theirs."""
        if code_remark(record.made_by for record in self.records) is None:
            return []
        apart = [
            _label(place)
            for place, cell in self.cells.items()
            if (base := self.baseline(place)) is not None and not one_code(cell, base, self.rules)
        ]
        among = f"except {'; '.join(apart)}" if apart else "in every row"
        said = "seeds have different states of it; the two runs of a pair share theirs"
        return [f"code: {said} {among}"]

    def _differences(self) -> list[str]:
        """Say which rows are not compared with the baseline, and which over some of their seeds."""
        found: dict[str, list[str]] = {}
        for place, cell in self.cells.items():
            if (base := self.baseline(place)) is None:
                continue
            paired, obstacle = pairs(cell, base, self.rules)
            if obstacle is not None:
                said = f"not compared with {self.study.baseline}, {obstacle}"
                found.setdefault(said, []).append(_label(place))
                continue
            own, others = (
                {seed for column in self.study.columns for seed in values(each, column)}
                for each in (cell, base)
            )
            common = sorted(set(paired) & others)
            if own and others and not own == others == set(common):
                seeds = " ".join(map(str, common))
                only = f"only seeds {seeds} are pairs"
                if len(common) < 2:
                    only = f"seed {seeds} is the only pair, and a difference takes two"
                found.setdefault(only, []).append(_label(place))
        said = "; ".join(f"{what} ({'; '.join(labels)})" for what, labels in found.items())
        shared = "on the same hardware and precision"
        if self.rules.code:
            shared = "of the same data, code, hardware and precision"
        reason = f"a pair has a seed of both rows {shared}"
        return [f"differences: {said}; {reason}"] if said else []

    def _not_alike(self) -> list[str]:
        """Say what rows at one point differ in beyond their names, where no study planned them."""
        if not self.rules.settings:
            return []
        points: dict[str, dict[str, Cell]] = {}
        for (point, name), cell in self.cells.items():
            points.setdefault(point, {})[name] = cell
        found = [note for own in points.values() for note in not_alike(own, [*self.study.grid])]
        return list(dict.fromkeys(found))

    def _rates(self, rows: Sequence[Row]) -> list[str]:
        """Name the values that tuning chose for each row."""
        size = self.study.scales.get(self.scale)
        found: dict[str, list[str]] = {}
        for row in rows:
            if size is not None and (chosen := size.chosen(row.name, row.point)):
                found.setdefault(" ".join(chosen), []).append(row.label)
        said = "; ".join(f"{chosen} ({', '.join(labels)})" for chosen, labels in found.items())
        return [f"tuning chose {said}"] if said else []

    def _intervals(self) -> list[str]:
        """Give the intervals of accuracies over test images, which a spread over seeds lacks."""
        found: list[str] = []
        for column in self.study.columns:
            texts: list[str] = []
            for place, cell in self.cells.items():
                scores = [
                    r.scores[column] for r in cell.records if r.finished and column in r.scores
                ]
                mean = fmean(score.value for score in scores) if scores else 0.0
                n = min((score.n for score in scores), default=0)
                if (bounds := accuracy_interval(column, mean, n)) is not None:
                    between = " to ".join(figure(bound, column) for bound in bounds)
                    texts.append(f"{_label(place)} {between}")
            if texts:
                said = "Wilson's 95 % interval of the mean, by the number of images"
                found.append(f"{column}: {said}: {'; '.join(texts)}")
        return found


def _made_of(records: Sequence[RunRecord]) -> str:
    """Say on which data, in which precision, on what and in how many updates runs were made."""
    sources, devices, precisions = (
        ", ".join(sorted({str(getattr(record, part).get(key)) for record in records}))
        for part, key in (
            ("data", "label"),
            ("environment", "device"),
            ("environment", "precision"),
        )
    )
    steps = sorted({record.budget.steps for record in records if record.finished})
    updates = " or ".join(f"{n:,}" for n in steps) or "no"
    if len(steps) > _STEPS_SHOWN:
        updates = f"{steps[0]:,} to {steps[-1]:,}"
    return f"data: {sources}; {precisions} on {devices}; {updates} updates"


def _tested(records: Sequence[RunRecord]) -> list[str]:
    """Say which weights were tested."""
    kinds = sorted({kind for record in records if record.finished and (kind := _weights(record))})
    return [f"tested: {', or '.join(kinds)}"] if kinds else []


def _weights(record: RunRecord) -> str:
    if record.weights:
        averaged = "average" in record.weights
        return "the mean of the last validations" if averaged else "the last weights"
    validate = record.config.get("validate") or {}
    if validate.get("average"):
        return f"the mean of the last {validate['average']} validations"
    by = validate.get("select_by")
    return f"the weights of the best valid/{by}, not the last" if by else ""
