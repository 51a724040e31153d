"""What a study is: its rows, its grid, its scales, and the runs that these plan."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from normlab.studies.tuning import Tuning

GRADES = ("A", "B", "C")
"""What a scale is worth as evidence: the document's own data; trained out and tuned; any other."""
STABILITY = "stability"
"""The name under which `figures` have what a document says of training stability."""
_AT = " @ "
SMOKE = "smoke"
"""The scale of seconds, which a command that names none carries out; it decides nothing."""
TRIALS = "tuning"
"""The study that trials of tuning name, so that they are nobody's evidence."""

Axis = Mapping[str, tuple[str, ...]]
"""The values of an axis of the grid, and the overrides that each stands for."""


@dataclass(frozen=True)
class Scale:
    """A size of a study: overrides of every run, seeds, minutes a run takes, and the data.

    `minutes` are typed in, about those on a core with AVX512, or on a GPU. `rows` are those that
    are run at this scale, `grid` the axes with the values that are. `data_name` is short, for
    titles. `rates` are the overrides that tuning chose, by "row" or "row @ axis=value ..."; a
    `pilot` never counts as evidence. `tuning` says how, or names the study whose tuning, at the
    scale of the same name, is used here too.
    """

    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    minutes: float
    data: str
    rows: tuple[str, ...]
    grid: Mapping[str, Axis]
    grade: str = "C"
    data_name: str = ""
    rates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pilot: bool = False
    tuning: Tuning | str | None = None

    def chosen(self, row: str, point: str) -> tuple[str, ...]:
        """Return what tuning chose for a row at a point of the grid, such as `optim.lr=1e-3`.

        Of two values of one key the one for more axes of the point holds.
        """
        found: dict[str, str] = {}
        for name in sorted(self.rates, key=lambda name: len(place_of(name)[1])):
            of, at = place_of(name)
            if of == row and at <= set(point.split()):
                found |= {override.partition("=")[0]: override for override in self.rates[name]}
        return tuple(found.values())


@dataclass(frozen=True)
class Planned:
    """One run of a study: its row, its point in the grid, its seed, and all its overrides."""

    row: str
    point: str
    seed: int
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A comparison table of a document and how it is filled.

    `figures` are what the document says, by row and column, or by row and `stability`;
    `document_data` names the data it says that of.
    """

    name: str
    description: str
    document: str
    table: str
    claims: tuple[int, ...]
    rows: Mapping[str, tuple[str, ...]]
    grid: Mapping[str, Axis]
    columns: tuple[str, ...]
    figures: Mapping[str, Mapping[str, str | float]]
    scales: Mapping[str, Scale]
    document_data: str = "its own data"

    @property
    def baseline(self) -> str:
        """Return the row that the others are compared with."""
        return next(iter(self.rows))

    def scale(self, name: str) -> Scale:
        """Return a scale; ValueError naming those there are."""
        if name not in self.scales:
            raise ValueError(
                f"study {self.name} has no scale={name}: there are {', '.join(self.scales)}"
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
        """Return all runs, seed by seed, so that a part of them is a whole table of fewer seeds.

        `rows` keeps these alone, in the order of the study. `extra` are overrides of every run. One
        for an axis of the grid keeps these of its values alone, as in `placement=pre`. ValueError
        naming the rows or values there are.
        """
        size = self.scale(scale)
        for row in rows or ():
            if row not in size.rows:
                raise ValueError(
                    f"{row!r} is no row of the study {self.name} at scale={scale}: "
                    f"there are {'; '.join(size.rows)}"
                )
        grid, rest = self._kept(size.grid, extra)
        return [
            Planned(
                row=row,
                point=point,
                seed=seed,
                overrides=(
                    *size.overrides,
                    *self.rows[row],
                    *own,
                    *size.chosen(row, point),
                    *rest,
                    f"seed={seed}",
                    f"observe.study={self.name}",
                ),
            )
            for seed in (size.seeds if seeds is None else seeds)
            for point, own in points_of(grid).items()
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
        """Return the runs by which a scale is tuned: rows, points, values and seeds, in this order.

        `extra` are overrides of every run, `rows` keeps these alone. Their study is `TRIALS`: no
        trial is evidence.
        """
        size = self.scale(scale)
        return [
            Planned(
                row=row,
                point=point,
                seed=seed,
                overrides=(
                    *(*size.overrides, *self.rows[row], *own),
                    *(() if row in tuning.whole_runs else tuning.overrides),
                    *(*extra, f"{tuning.key}={value}", f"seed={seed}", f"observe.study={TRIALS}"),
                ),
            )
            for row in size.rows
            if rows is None or row in rows
            for point, own in points_of(size.grid).items()
            for value in tuning.values
            for seed in tuning.seeds
        ]

    def cost(self, scale: str) -> tuple[int, float]:
        """Return how many runs a scale has, and the hours in a row, as typed in, not measured."""
        size = self.scale(scale)
        runs = len(size.rows) * len(points_of(size.grid)) * len(size.seeds)
        return runs, runs * size.minutes / 60

    def _kept(
        self, grid: Mapping[str, Axis], extra: Sequence[str]
    ) -> tuple[dict[str, Axis], list[str]]:
        """Take what is said of the grid from overrides; return the grid that is left, the rest."""
        kept, rest = dict(grid), list[str]()
        for override in extra:
            axis, _, values = override.partition("=")
            if axis not in self.grid:
                rest.append(override)
                continue
            try:
                kept[axis] = selected(self.grid[axis], values.split(","))
            except KeyError as error:
                raise ValueError(
                    f"{override}: {error.args[0]} is no value of the study {self.name}: "
                    f"there are {', '.join(self.grid[axis])}"
                ) from None
        return kept, rest


def points_of(grid: Mapping[str, Axis]) -> dict[str, tuple[str, ...]]:
    """Return the points of a grid in its order, and their overrides; one named "" for no axis."""
    return {
        " ".join(f"{axis}={value}" for axis, value in zip(grid, values, strict=True)): tuple(
            override
            for axis, value in zip(grid, values, strict=True)
            for override in grid[axis][value]
        )
        for values in product(*grid.values())
    }


def place_of(name: str) -> tuple[str, set[str]]:
    """Split the name of rates, "row @ axis=value axis=value", into its row and its axes."""
    row, _, point = name.partition(_AT)
    return row, set(point.split())


def selected(axis: Axis, values: Iterable[str]) -> Axis:
    """Keep some values of an axis; KeyError for one that it has not."""
    return {value: axis[value] for value in values}


def rate_name(row: str, point: str) -> str:
    """Return the name under which `rates` have what was chosen for a row at a point."""
    return f"{row}{_AT}{point}" if point else row
