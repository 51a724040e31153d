"""The definition of a study: its rows, grid, scales and tuning, and the runs that it plans."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct, field

from normlab.config.conversion import Text
from normlab.errors import UserError
from normlab.formats import counted
from normlab.records.packed import Key
from normlab.records.point import point_text, point_values, split_place

STATEMENT = "stability"
"""The key of `article_values` for an article's statement on training stability."""
SMOKE = "smoke"
"""The smallest scale and the default of commands. It shows that a study runs, nothing more."""
TUNING = "tuning"
"""The study's name in the configs of tuning trials, so that they never count as evidence."""
ANALYSES = (5, 8, 12)
"""The numbers of seeds at which planned analyses judge the parts of claims."""

_YEAR = 365 * 24 * 60  # minutes
Texts = Annotated[tuple[Text, ...], Meta(min_length=1)]
Overrides = tuple[Annotated[str, Meta(pattern="=")], ...]
Rows = Annotated[dict[Text, Overrides], Meta(min_length=1)]
Axis = Annotated[dict[Text, Overrides], Meta(min_length=1)]
"""The values of a grid axis, each with its overrides."""
Column = Annotated[str, Meta(pattern=r"^(valid|test\w*|stability)/.+")]
Seeds = Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1)]


class Tuning(Struct, frozen=True, forbid_unknown_fields=True):
    """How tuning chooses a value for each row and point, from the same values and seeds for all.

    Each of `values` of the config key `key` is tried on `seeds`, which no other run uses, and
    judged by the validation score `score` of the last weights. `overrides` shorten the trials. Rows
    in `whole_runs` get full-length trials, because short trials may choose too high a rate.
    """

    key: Text
    values: Texts
    seeds: Seeds
    score: Annotated[str, Meta(pattern="^valid/.+")]
    overrides: Overrides = ()
    whole_runs: tuple[Text, ...] = ()


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """A size of a study: overrides for all runs, seeds, minutes per run, and data.

    `minutes` is an estimate for one core with AVX512, or for a GPU. `rows` and `grid` are the rows
    and values to run at this scale; in the file, `grid` has a list of values per axis. `data_name`
    is a short name for titles, by default `data`. If a study has several tasks, `data_of_tasks` has
    the name of each task's data. `rates` maps "row" or "row @ axis=value ..." to the overrides
    chosen by tuning. A `pilot` never counts as evidence. `tuning` says how rates are chosen. It may
    also be the name of another scale of this study, or of another study with this scale, to use the
    tuning found there.
    """

    overrides: Overrides
    seeds: Seeds
    minutes: Annotated[float, Meta(gt=0, le=_YEAR)]
    data: Text
    rows: tuple[Text, ...] = ()
    grid: Any = field(default_factory=dict)
    grade: Literal["A", "B", "C"] = "C"
    data_name: str = ""
    data_of_tasks: Mapping[str, Text] = field(default_factory=dict)
    rates: Mapping[str, Overrides] = field(default_factory=dict)
    pilot: bool = False
    tuning: Tuning | str | None = None

    def data_name_of(self, tasks: Collection[str]) -> str:
        """Return the short name of the data that `tasks` use.

        Returns `data_name` if `tasks` is empty, has all tasks of `data_of_tasks`, or has another
        task.
        """
        names = self.data_of_tasks
        if not tasks or set(tasks) >= names.keys() or not set(tasks) <= names.keys():
            return self.data_name
        return " and ".join(name for task, name in names.items() if task in tasks)

    def chosen(self, row: str, point: str) -> tuple[str, ...]:
        """Return the overrides, such as `optim.lr=1e-3`, tuned for a row at a point of the grid."""
        return _entries(self.rates, row, point)


class LiteratureNumber(Struct, frozen=True, forbid_unknown_fields=True):
    """A number that others published, or its range, with what it measures and where it is from.

    It is compared with a row's score at a scale and point. If `minus` names another row, or
    `minus_at` another point, it is compared with the difference from there, paired by seed. `by:
    sign` says that only the sign is expected to agree at our size, and `by: no difference` that the
    authors found no clear difference. `unit` is the unit of the number if it is not that of our
    score. `why` says why we have not run it, or what differs. `ours_first` says that our runs had
    been seen when the number was added.
    """

    what: Text
    source: Text
    number: Annotated[tuple[float, ...], Meta(min_length=1, max_length=2)]
    row: Text
    column: Column
    scale: Text
    minus: str = ""
    at: str = ""
    minus_at: str = ""
    by: Literal["value", "sign", "no difference"] = "value"
    unit: str = ""
    why: str = ""
    ours_first: bool = False


class Planned(NamedTuple):
    """A run of a study: its row, its point in the grid, its seed, and all overrides.

    `tuned` is the value that a tuning trial tries, and "" for other runs.
    """

    row: str
    point: str
    seed: int
    overrides: tuple[str, ...]
    tuned: str = ""

    @property
    def key(self) -> Key:
        return Key(self.row, self.point, self.seed)

    @property
    def settings(self) -> dict[str, str]:
        """The last value of each key that its overrides set, as text."""
        pairs = (text.partition("=") for text in self.overrides)
        return {key: value for key, _, value in pairs}

    @property
    def row_and_point(self) -> tuple[str, str]:
        return self.key.row_and_point

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.row, self.point, f"seed={self.seed}")))


@dataclasses.dataclass(frozen=True)
class Study:
    """A comparison table, from an article or planned for normlab, and the runs that fill it.

    `article` is the name of the article or another source. `article_values` are its values by row
    and column, or by row and `stability`, and `article_data` is the name of the data on which they
    were measured. `at` maps "row @ axis=value ..." to additional overrides of the row at these
    points of the grid. `literature` has numbers published by others, which `results/literature.md`
    compares with ours.
    """

    name: str
    description: str
    article: Text
    table: Text
    rows: Rows
    columns: Annotated[tuple[Column, ...], Meta(min_length=1)]
    scales: dict[str, Scale] = dataclasses.field(default_factory=dict)
    claims: tuple[int, ...] = ()
    grid: dict[Text, Axis] = dataclasses.field(default_factory=dict)
    article_values: dict[str, dict[str, float | str]] = dataclasses.field(default_factory=dict)
    article_data: Text = "its own data"
    at: Mapping[str, Overrides] = dataclasses.field(default_factory=dict)
    literature: tuple[LiteratureNumber, ...] = ()

    @property
    def baseline(self) -> str:
        return next(iter(self.rows))

    def scale(self, name: str) -> Scale:
        """Return a scale by name, or raise a UserError that lists all scales."""
        if name not in self.scales:
            raise UserError(
                f"scale={name} is not a scale of {self.name}; choose from {', '.join(self.scales)}"
            )
        return self.scales[name]

    def planned(
        self,
        scale: str,
        *,
        seeds: Sequence[int] | None = None,
        rows: Collection[str] | None = None,
        extra: Sequence[str] = (),
    ) -> list[Planned]:
        """Return all runs, ordered by seed, so that the first seeds already make complete tables.

        `rows` selects rows, which keep the study's order. `extra` are overrides for every run. An
        override of an axis, such as `placement=pre`, selects values of the grid. If the axis has no
        such value, raises a UserError that lists its values.
        """
        size = self.scale(scale)
        grid, rest = self._part(size, extra)
        return [
            Planned(
                row,
                point,
                seed,
                (
                    *self._settings(size, row, point, of_point),
                    *size.chosen(row, point),
                    *rest,
                    f"seed={seed}",
                    f"observe.study={self.name}",
                ),
            )
            for seed in (size.seeds if seeds is None else seeds)
            for point, of_point in points_of(grid).items()
            for row in size.rows
            if rows is None or row in rows
        ]

    def trials(
        self,
        scale: str,
        tuning: Tuning,
        extra: Sequence[str] = (),
        *,
        rows: Collection[str] | None = None,
    ) -> list[Planned]:
        """Return the trials that tune a scale, ordered by row, point, value and seed.

        `rows` and `extra` are as in `planned`.
        """
        size = self.scale(scale)
        grid, rest = self._part(size, extra)
        return [
            Planned(
                row,
                point,
                seed,
                (
                    *self._settings(size, row, point, of_point),
                    *(() if row in tuning.whole_runs else tuning.overrides),
                    *rest,
                    f"{tuning.key}={value}",
                    f"seed={seed}",
                    f"observe.study={TUNING}",
                ),
                tuned=value,
            )
            for row in size.rows
            if rows is None or row in rows
            for point, of_point in points_of(grid).items()
            for value in tuning.values
            for seed in tuning.seeds
        ]

    def _settings(self, size: Scale, row: str, point: str, of_point: Overrides) -> Overrides:
        """Return the overrides of a row at a point, except the tuned ones."""
        return (*size.overrides, *self.rows[row], *of_point, *_entries(self.at, row, point))

    def _part(self, size: Scale, extra: Sequence[str]) -> tuple[dict[str, Axis], list[str]]:
        """Return the part of a scale's grid that overrides select, and all other overrides."""
        grid, rest = dict(size.grid), list[str]()
        for override in extra:
            axis, _, values = override.partition("=")
            if axis not in self.grid:
                rest.append(override)
            elif wrong := [each for each in values.split(",") if each not in self.grid[axis]]:
                raise UserError(
                    f"{override}: the study {self.name} has no value {wrong[0]}; "
                    f"choose from {', '.join(self.grid[axis])}"
                )
            else:
                grid[axis] = {value: self.grid[axis][value] for value in values.split(",")}
        return grid, rest

    def cost(self, scale: str) -> tuple[int, float]:
        """Return the number of runs at a scale, and the hours estimated from the study's file."""
        size = self.scale(scale)
        runs = len(size.rows) * len(points_of(size.grid)) * len(size.seeds)
        return runs, runs * size.minutes / 60

    def cost_text(self, scale: str) -> str:
        """Return the cost at a scale, such as `30 runs, 6.0 h`, estimated from the study's file."""
        runs, hours = self.cost(scale)
        time = f"{hours:.1f} h" if hours >= 1 else f"{max(1, round(hours * 60))} min"
        return f"{counted(runs, 'run')}, {time}"


def points_of(grid: Mapping[str, Axis]) -> dict[str, tuple[str, ...]]:
    """Return the points of a grid and their overrides. A grid without axes has one point, ""."""
    points = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    return {
        point_text(point): tuple(
            override for axis, value in point.items() for override in grid[axis][value]
        )
        for point in points
    }


def _entries(table: Mapping[str, Overrides], row: str, point: str) -> tuple[str, ...]:
    """Return the overrides of the entries that match a row at a point of the grid.

    If two entries set the same key, the entry with more axes wins.
    """
    axes = point_values(point).items()
    matching: list[tuple[int, Overrides]] = []
    for place, of_place in table.items():
        of, at = split_place(place)
        values = point_values(at).items()
        if of == row and values <= axes:
            matching.append((len(values), of_place))
    overrides: dict[str, str] = {}
    for _, of_place in sorted(matching, key=itemgetter(0)):
        overrides |= {override.partition("=")[0]: override for override in of_place}
    return tuple(overrides.values())
