"""The table of a study, or of any runs: a pure function of the study and the records of its runs.

A row is a setting at a point of the study's grid. For each score it has the mean over the seeds
that finished with its spread, and the difference to the first row at the same point, paired by
seed, with its 95 % t interval and p value (Student 1908: right for as few seeds as two, if
differences are normal). Whether translations would differ on other sentences is another question,
which `normlab compare A B --bootstrap` answers. Runs that must not be averaged or compared are
refused with the reason, and seeds that diverged are counted, never dropped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from normlab.metrics.spread import accuracy_interval, at_baseline
from normlab.records.aggregate import Cell
from normlab.records.pairs import code_remark, diff
from normlab.records.record import RunRecord
from normlab.records.store import SPIKE_COUNT
from normlab.reports.comparison import (
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
from normlab.reports.runs import Run, by_setting
from normlab.reports.table import Entry, Row, Table, figure
from normlab.studies import STABILITY, Scale, Study

BOLD = (
    "bold: better than every other row at its point, p below 0.05 after Holm over all pairs of "
    f"rows; all rows have {SEEDS_TO_DECIDE} seeds or more, all of them finished and clear of the "
    "untrained baseline, and the two runs of each pair have the same code"
)
_Place = tuple[str, str]
"""A row and its point."""


def build(study: Study, scale: str, runs: Iterable[Run], *, found: bool = False) -> Table:
    """Return the table of a study from its runs, or of runs that were `found`, without a plan."""
    groups = by_setting(runs)
    joined = {place: _joined(members, study.columns) for place, members in groups.items()}
    cells = {place: cell for place, cell in joined.items() if isinstance(cell, Cell)}
    overrides = [each for row in study.rows.values() for each in row]
    precision = not any(each.startswith("precision=") for each in overrides)
    size = study.scales.get(scale)
    made = _Joined(study, size, cells, Rules(precision, found))
    rows = made.rows(groups, joined)
    data = data_name(study, scale, made.records)
    title = f"{study.table}, on {data} ({study.name}, scale={scale})"
    if found:
        title = f"{study.table} on {data}{scale and f', scale={scale}'}"
    return Table(
        title=title,
        columns=study.columns,
        rows=tuple(rows),
        notes=tuple(made.notes(rows)),
        details=tuple(made.intervals()),
        apart=f"document ({study.document_data})" if any(study.figures.values()) else "",
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


def _joined(runs: Sequence[Run], columns: Sequence[str]) -> Cell | str:
    """Join the seeds of a row, or say why they cannot be joined."""
    records = [run.record for run in runs if run.record is not None]
    if not records:
        return runs[0].state
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
    return " ".join(place).strip()


@dataclass(frozen=True)
class _Joined:
    """The joined seeds of a table, of which its rows and notes are made."""

    study: Study
    size: Scale | None
    cells: Mapping[_Place, Cell]
    rules: Rules

    @property
    def records(self) -> list[RunRecord]:
        return [record for cell in self.cells.values() for record in cell.records]

    @property
    def labelled(self) -> dict[str, Cell]:
        return {_label(place): cell for place, cell in self.cells.items()}

    @property
    def points(self) -> list[dict[str, Cell]]:
        """Return the rows at each point by their names."""
        found: dict[str, dict[str, Cell]] = {}
        for (name, point), cell in self.cells.items():
            found.setdefault(point, {})[name] = cell
        return list(found.values())

    def baseline(self, place: _Place) -> Cell | None:
        """Return the baseline at the point of a row; None for the baseline itself."""
        first = self.study.baseline
        return None if place[0] == first else self.cells.get((first, place[1]))

    def compared(self) -> Iterator[tuple[str, Cell, Cell]]:
        """Yield each row that has a baseline at its point: its label and both cells."""
        for place, cell in self.cells.items():
            if (base := self.baseline(place)) is not None:
                yield _label(place), cell, base

    def rows(
        self, groups: Mapping[_Place, Sequence[Run]], joined: Mapping[_Place, Cell | str]
    ) -> list[Row]:
        bold = {
            (id(found), column)
            for here in self.points
            for column in self.study.columns
            if (found := best([*here.values()], column, self.rules)) is not None
        }
        rows: list[Row] = []
        for place, runs in groups.items():
            cell, base = joined[place], self.baseline(place)
            said = self.study.figures.get(place[0], {})
            entries = {name: Entry(name, document=said.get(name)) for name in self.study.columns}
            if isinstance(cell, str):
                outcome = cell if cell == runs[0].state else "refused"
                rows.append(Row(*place, outcome, (), entries, outcome, said.get(STABILITY), cell))
                continue
            for name, entry in entries.items():
                entries[name] = replace(
                    entry,
                    summary=cell.score(name),
                    values=values(cell, name),
                    higher_is_better=higher_is_better(cell, name),
                    difference=base and difference(cell, base, name, self.rules),
                    best=(id(cell), name) in bold,
                )
            outcome, stability = self._ended(cell, runs)
            rows.append(Row(*place, outcome, cell.seeds, entries, stability, said.get(STABILITY)))
        return rows

    def _ended(self, cell: Cell, runs: Sequence[Run]) -> tuple[str, str]:
        """Return how the seeds of a row ended, without and with how they trained."""
        others = [run.state for run in runs if run.record is None]
        outcome = cell.outcome + (f", {len(others)} {others[0]}" if others else "")
        spikes = [r.stability[SPIKE_COUNT] for r in cell.records if SPIKE_COUNT in r.stability]
        said = [outcome]
        if "diverged" not in outcome:
            said.append(f"diverged {diverged_seeds(cell)}")
        said += marks(cell)
        said.append(f"spikes {median(spikes):g}" if spikes else "spikes not counted")
        if self.rules.found and (speed := cell.tokens_per_second()) is not None:
            said.append(f"{speed.mean:,.0f} {cell.records[0].unit}/s")
        return outcome, "; ".join(said)

    def notes(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield the notes of a table, in a fixed order."""
        records, baseline = self.records, self.study.baseline
        refused = [f"{r.label}: {r.problem}" for r in rows if r.problem not in (None, r.outcome)]
        if not records:
            yield from refused or ["no run has ended"]
            return
        yield _made_of(records)
        if weights := sorted({_weights(record) for record in records if record.finished} - {""}):
            yield f"tested: {', or '.join(weights)}"
        yield (
            "mean +- standard deviation over the seeds that finished; in brackets the difference "
            f"to {baseline} at the same point, paired by seed, with its 95 % t interval and "
            "p value, not corrected for multiple comparisons"
        )
        if any(entry.best for row in rows for entry in row.entries.values()):
            yield BOLD
        few = min(len(cell.seeds) for cell in self.cells.values())
        if self.size is not None and self.size.pilot:
            yield "a pilot: it decides nothing"
        elif few < SEEDS_TO_DECIDE:
            yield f"rows of fewer than {SEEDS_TO_DECIDE} seeds decide nothing (fewest: {few})"
        yield from self._untrained()
        yield from future_note(self.labelled)
        if not any(record.finished for record in records):
            yield "no run has finished"
        if any(self.study.figures.values()):
            yield f"document: what {self.study.document} says, at its own size and data"
        if code_remark(record.made_by for record in records) is not None:
            apart = [label for label, *both in self.compared() if not one_code(*both, self.rules)]
            among = f"except {'; '.join(apart)}" if apart else "in every row"
            said = "seeds have different states of it; the two runs of a pair share theirs"
            yield f"code: {said} {among}"
        yield from refused
        yield from self._differences()
        axes = [*self.study.grid]
        alike = [not_alike(here, axes) for here in (self.points if self.rules.found else ())]
        yield from dict.fromkeys(note for notes in alike for note in notes)
        yield from scored_by(self.labelled, self.study.columns)

    def _untrained(self) -> Iterator[str]:
        """Yield the untrained baseline of each score, and the rows that are not clear of it."""
        found: list[str] = []
        low: list[str] = []
        for column in self.study.columns:
            name = column.rpartition("/")[2]
            scored = [r for r in self.records if name in r.floors and column in r.scores]
            if known := [record.floors[name] for record in scored]:
                bounds = dict.fromkeys(figure(value, column) for value in (min(known), max(known)))
                found.append(f"{column} {' to '.join(bounds)}")
            own = [
                label
                for label, cell in self.labelled.items()
                if at_baseline([r for r in cell.records if r.finished], column) is not None
            ]
            if own:
                low.append(f"{column} ({'; '.join(own)})")
        if found or low:
            clear = "; not clear of it, so a difference says nothing: " if low else ""
            said = ", ".join(found) or "not of these scores"
            yield f"untrained baseline: {said}{clear}{'; '.join(low)}"

    def _differences(self) -> Iterator[str]:
        """Say which rows are not compared with the baseline, and which over some of their seeds."""
        found: dict[str, list[str]] = {}
        for label, cell, base in self.compared():
            paired, obstacle = pairs(cell, base, self.rules)
            own, others = (
                {seed for column in self.study.columns for seed in values(each, column)}
                for each in (cell, base)
            )
            common = sorted(set(paired) & others)
            seeds = " ".join(map(str, common))
            if obstacle:
                said = f"not compared with {self.study.baseline}, {obstacle}"
            elif not own or not others or own == others == set(common):
                continue
            elif len(common) < 2:
                said = f"seed {seeds} is the only pair, and a difference takes two"
            else:
                said = f"only seeds {seeds} are pairs"
            found.setdefault(said, []).append(label)
        shared = "on the same hardware and precision"
        if self.rules.found:
            shared = "of the same data, code, hardware and precision"
        if said := "; ".join(f"{what} ({'; '.join(labels)})" for what, labels in found.items()):
            yield f"differences: {said}; a pair has a seed of both rows {shared}"

    def intervals(self) -> Iterator[str]:
        """Give the intervals of accuracies over test images, which a spread over seeds lacks."""
        for column in self.study.columns:
            texts: list[str] = []
            for label, cell in self.labelled.items():
                found = [r.scores.get(column) for r in cell.records if r.finished]
                scores = [score for score in found if score is not None]
                mean = fmean(score.value for score in scores) if scores else 0.0
                n = min((score.n for score in scores), default=0)
                if (bounds := accuracy_interval(column, mean, n)) is not None:
                    between = " to ".join(figure(bound, column) for bound in bounds)
                    texts.append(f"{label} {between}")
            if texts:
                said = "Wilson's 95 % interval of the mean, by the number of images"
                yield f"{column}: {said}: {'; '.join(texts)}"


def _made_of(records: Sequence[RunRecord]) -> str:
    """Say on which data, in which precision, on what and in how many updates runs were made."""
    facts = [
        (record.data.get("label"), *map(record.environment.get, ("precision", "device")))
        for record in records
    ]
    sources, precisions, devices = (
        ", ".join(sorted(set(map(str, own)))) for own in zip(*facts, strict=True)
    )
    steps = sorted({record.budget.steps for record in records if record.finished})
    updates = " or ".join(f"{n:,}" for n in steps) or "no"
    if len(steps) > 3:
        updates = f"{steps[0]:,} to {steps[-1]:,}"
    return f"data: {sources}; {precisions} on {devices}; {updates} updates"


def _weights(record: RunRecord) -> str:
    """Say which weights of a run were tested."""
    if record.weights:
        averaged = "average" in record.weights
        return "the mean of the last validations" if averaged else "the last weights"
    validate = record.config.get("validate") or {}
    if validate.get("average"):
        return f"the mean of the last {validate['average']} validations"
    by = validate.get("select_by")
    return f"the weights of the best valid/{by}, not the last" if by else ""
