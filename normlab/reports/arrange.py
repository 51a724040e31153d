"""Any runs as a study: which experiments are rows, and which keys are the axes of its grid.

An experiment is a row, and its seeds are joined. Where numbers are crossed with something else, as
in a sweep over norms and batch sizes, they are the axes of a grid: a row is then compared with the
baseline at the same numbers. Runs of several tasks are at points of their task.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from normlab.records.labels import corpus_label, norm_label, placement_label
from normlab.records.pairs import varying, without
from normlab.records.record import Parts, RunRecord, parts
from normlab.reports.runs import Run
from normlab.studies import Planned, Study

DRAWN = 40
"""Settings whose curves a page has: no reader tells more lines apart."""
USUAL = "ln"
"""The norm that the others are compared with unless the user names another row."""
NAMED = ("norm", "placement", "task", "corpus", "batch")
_SHOWN = ("norm", "placement", "task", "task/corpus")
_TESTS = (
    *("test/bleu", "test/chrf", "test/mlm_accuracy", "test/nsp_accuracy"),
    *("test/bits_per_character", "test/accuracy"),
)
_ALSO = "valid/loss"
_NAMED = 8  # names that an error lists
_SPARSE = 4  # numbers are no grid if it has this many times more points than there are experiments


@dataclass(frozen=True)
class Arranged:
    """Runs as the page of a study takes them: `scale` is "" where no run chose one.

    `undrawn` counts the settings without curves.
    """

    study: Study
    scale: str
    runs: tuple[Run, ...]
    undrawn: int


@dataclass(frozen=True)
class _Place:
    """An experiment: its row, its value of each axis, its runs by their seeds."""

    row: str
    at: Mapping[str, Any]
    members: Sequence[Run]

    @property
    def point(self) -> str:
        return " ".join(f"{axis}={_written(value)}" for axis, value in self.at.items())


def arranged(
    found: Sequence[Run], *, baseline: str | None = None, scores: Sequence[str] = ()
) -> Arranged:
    """Arrange runs; curves are kept for `DRAWN` settings, unfinished ones first.

    `baseline` names the row that the others are compared with, `scores` the columns. Raises
    ValueError for a baseline that is no row and a score that no run has, naming those there are.
    """
    groups: dict[str, list[Run]] = {}
    for each in found:
        groups.setdefault(each.experiment, []).append(each)
    experiments = [sorted(own, key=lambda run: run.planned.seed) for own in groups.values()]
    places = _places(experiments, baseline)
    rows = list(dict.fromkeys(place.row for place in places))
    if baseline is not None and baseline not in rows:
        there = "; ".join(get_close_matches(baseline, rows, n=_NAMED) or rows[:_NAMED])
        raise ValueError(f"--baseline {baseline}: no row is called that; there are {there}")
    first = baseline or (_usual(places) if places else "")
    rows.sort(key=lambda row: row != first)
    places.sort(key=lambda place: (*place.at.values(), rows.index(place.row)))
    grid: dict[str, dict[str, tuple[str, ...]]] = {}
    for place in places:
        for axis, value in place.at.items():
            grid.setdefault(axis, {})[_written(value)] = ()
    study = Study(
        name="runs",
        description="",
        document="",
        table="Runs",
        claims=(),
        rows={row: () for row in rows},
        grid={axis: dict(sorted(values.items(), key=_by_size)) for axis, values in grid.items()},
        columns=tuple(_columns([run.record for run in found if run.record is not None], scores)),
        figures={},
        scales={},
    )
    waiting = sorted(places, key=lambda place: not any(run.now for run in place.members))
    undrawn = {id(place) for place in waiting[DRAWN:]}
    runs: list[Run] = []
    for place in places:
        for run in place.members:
            planned = Planned(place.row, place.point, run.planned.seed, ())
            rows = () if id(place) in undrawn else run.rows
            runs.append(replace(run, planned=planned, rows=rows))
    scales = sorted({run.choice("scale") for run in found} - {"none"})
    return Arranged(study, ", ".join(scales), tuple(runs), len(undrawn))


def _places(experiments: Sequence[Sequence[Run]], baseline: str | None) -> list[_Place]:
    if not experiments:
        return []
    tasks = [members[0].task for members in experiments]
    if len(set(tasks)) > 1:
        places: list[_Place] = []
        for task in dict.fromkeys(tasks):
            own = [each for each, of in zip(experiments, tasks, strict=True) if of == task]
            places += _named(own, [{"task": task}] * len(own))
        return places
    values = [parts(members[0].settings) for members in experiments]
    axes = _axes(values)
    points = [{keys[0]: at[keys[0]] for keys in axes} for at in varying(values)]
    grid = _named(experiments, points, [key for keys in axes for key in keys])
    plain = _named(experiments, [{}] * len(experiments))
    rows, experiment_rows = ({place.row for place in each} for each in (grid, plain))
    if baseline in experiment_rows - rows:
        return plain
    return grid if _is_grid(grid, baseline if baseline in rows else None) else plain


def _named(
    experiments: Sequence[Sequence[Run]],
    points: Sequence[Mapping[str, Any]],
    keys: Sequence[str] = (),
) -> list[_Place]:
    """Name the rows: experiments that differ only in keys of the axes share a row."""
    axes = tuple(keys)
    rests = [without(parts(members[0].settings), axes) for members in experiments]
    firsts = dict(zip(reversed(rests), (each[0] for each in reversed(experiments)), strict=True))
    named = names([_stripped(firsts[rest].settings, axes) for rest in dict.fromkeys(rests)])
    rows = {rest: name.label for rest, name in zip(dict.fromkeys(rests), named, strict=True)}
    return [
        _Place(rows[rest], at, members)
        for rest, at, members in zip(rests, points, experiments, strict=True)
    ]


class Name(NamedTuple):
    """What an experiment is named by (`NAMED`), what sets it apart from its like, and its label."""

    names: tuple[str, ...]
    also: str
    label: str


def names(configs: Sequence[Mapping[str, Any]]) -> list[Name]:
    """Name experiments; the label of each has what not all of them share."""
    found = [_names(config) for config in configs]
    vary = [n for n in range(1, len(NAMED)) if len({each[n] for each in found}) > 1]
    like: dict[tuple[str, ...], list[int]] = {}
    for number, own in enumerate(found):
        like.setdefault(own, []).append(number)
    also: dict[int, str] = {}
    for numbers in like.values():
        also |= zip(numbers, _apart([configs[n] for n in numbers]), strict=True)
    return [
        Name(own, also[number], " ".join([own[0], *(own[n] for n in vary), also[number]]).strip())
        for number, own in enumerate(found)
    ]


def _names(config: Mapping[str, Any]) -> tuple[str, ...]:
    choices = config.get("choices", {})
    size, tokens = config.get("batch_size"), config.get("max_tokens")
    batch = str(size) if size is not None else f"{tokens} tokens" if tokens is not None else "-"
    if (accumulate := config.get("accumulate") or 1) > 1:
        batch = f"{accumulate} x {batch}"
    placement, corpus = placement_label(choices, config), corpus_label(config)
    named = (norm_label(choices), placement, choices.get("task"), corpus, batch)
    return tuple(name or "-" for name in named)


def _apart(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say of experiments that are named alike what sets each apart."""
    chosen = [config.get("choices", {}) for config in configs]
    groups = sorted({key for each in chosen for key in each} - {*_SHOWN})
    options = [key for key in groups if len({each.get(key) for each in chosen}) > 1]
    apart = varying([parts(config) for config in configs])
    # A key that repeats another in all rows says nothing, as `schedule.lr` does `optim.lr`, and
    # the name of an option says more than all the values below it.
    first: dict[tuple[str, str], str] = {}
    for key in apart[0]:
        first.setdefault((key.rpartition(".")[2], repr([each[key] for each in apart])), key)
    keys = [key for key in first.values() if key.split(".")[0] not in options]
    return [
        " ".join([*(f"{k}={own.get(k)}" for k in options), *(f"{k}={found[k]}" for k in keys)])
        for own, found in zip(chosen, apart, strict=True)
    ]


def _together(values: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the keys of configs, short first; keys with equal values in each config are one."""
    columns: dict[str, list[str]] = {}
    for key in sorted(values[0], key=lambda key: (len(key), key)):
        columns.setdefault(repr([each[key] for each in values]), []).append(key)
    return [tuple(keys) for keys in columns.values()]


def _stripped(config: Mapping[str, Any], axes: Sequence[str]) -> dict[str, Any]:
    """Return a config without the dotted keys of axes."""
    found = dict(config)
    for axis in axes:
        top, _, below = axis.partition(".")
        if not below:
            found.pop(top, None)
        elif isinstance(found.get(top), Mapping):
            found[top] = _stripped(found[top], [below])
    return found


def _axes(experiments: Sequence[Parts]) -> list[tuple[str, ...]]:
    """Return the keys of which an experiment was made with several numbers, all else equal.

    Keys that always have the same value are one axis, named by the first of them.
    """
    values = varying(experiments)
    axes: list[tuple[str, ...]] = []
    for keys in _together(values):
        numbers = [at[keys[0]] for at in values]
        if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
            continue
        if any(isinstance(n, bool) for n in numbers):
            continue
        rests: dict[tuple[tuple[str, str], ...], set[float]] = {}
        for experiment, number in zip(experiments, numbers, strict=True):
            rests.setdefault(without(experiment, keys), set()).add(number)
        if any(len(found) > 1 for found in rests.values()):
            axes.append(keys)
    return axes


def _is_grid(places: Sequence[_Place], baseline: str | None) -> bool:
    """Tell whether there are several rows, the baseline at each point, and not too many points."""
    first = baseline or _usual(places)
    points = {place.point for place in places}
    sizes = [len({place.at[axis] for place in places}) for axis in places[0].at]
    return (
        len({place.row for place in places}) > 1
        and points == {place.point for place in places if place.row == first}
        and math.prod(sizes) <= _SPARSE * len(places)
    )


def _usual(places: Sequence[_Place]) -> str:
    """Return the row of the usual norm, else the first one."""
    return next((p.row for p in places if p.members[0].norm == USUAL), places[0].row)


def _columns(records: Sequence[RunRecord], scores: Sequence[str]) -> list[str]:
    """Return the scores to show: those asked for, else those of whole tests and the loss."""
    known = check_scores(scores, records)
    if scores:
        return list(scores)
    main = dict.fromkeys(name for record in records for name in record.main_scores)
    tests = [name for name in main if name.startswith("test/")]
    usual = [name for name in _TESTS if name in tests] or tests[:1]
    return [*usual, *([_ALSO] if _ALSO in known else [])]


def check_scores(wanted: Iterable[str], records: Sequence[RunRecord]) -> dict[str, None]:
    """Return the scores that runs have; ValueError for one wanted that no run has."""
    known = dict.fromkeys(name for record in records for name in record.scores)
    for name in wanted:
        if name not in known:
            whole = sorted(score for score in known if score.count("/") == 1)
            near = get_close_matches(name, known, n=5) or whole
            more = f" and {len(known) - len(near)} more" if len(known) > len(near) else ""
            there = ", ".join(near) or "none"
            raise ValueError(f"--score {name}: no run has this score; there are {there}{more}")
    return known


def _written(value: Any) -> str:
    """Write a value of an axis, without the digits that floating-point arithmetic adds."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _by_size(item: tuple[str, Any]) -> tuple[float, str]:
    try:
        return float(item[0]), item[0]
    except ValueError:
        return math.inf, item[0]
