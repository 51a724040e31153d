"""Studies: the grid of runs that fills one comparison table of the documents, read from data.

A study is a file of `configs/study` and nothing else: what is compared (`rows`, the first is what
the others are compared with), what is varied for every row (`grid`), which scores are shown, what
the document says, and by scale how large, on which data, with which seeds. An axis of the grid is
a list of values of its key, or gives each value the overrides it stands for. A scale may leave out
rows and values: `rows` and `grid` of its own name those it keeps. Its `rates` are the values that
tuning chose for a row, or for a row at some points; its `tuning` says how they are found, or names
the study by whose grid. No torch, no Hydra.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import product
from pathlib import Path

from normlab.registry import CONFIG_DIR, option_names, options
from normlab.study_file import StudyFile
from normlab.study_tuning import Tuning, read_tuning

_KEYS = ("document", "table", "claims", "rows", "grid", "columns", "figures", "scales")
_MAY = ("document_data",)
_SCALE_KEYS = ("overrides", "seeds", "minutes", "data")
_SCALE_MAY = ("rows", "grid", "grade", "data_name", "rates", "pilot", "tuning")
GRADES = ("A", "B", "C")
"""What a scale is worth as evidence: the document's own data; trained out and tuned; any other."""
STABILITY = "stability"
"""The name under which `figures` have what a document says of training stability."""
_AT = " @ "
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
        for name in sorted(self.rates, key=lambda name: len(_place(name)[1])):
            of, at = _place(name)
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
            for point, own in _points(grid).items()
            for row in size.rows
            if rows is None or row in rows
        ]

    def trials(self, scale: str, tuning: Tuning, extra: Sequence[str] = ()) -> list[Planned]:
        """Return the runs by which a scale is tuned: rows, points, values and seeds, in this order.

        `extra` are overrides of every run. Their study is `TRIALS`: no trial is evidence.
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
            for point, own in _points(size.grid).items()
            for value in tuning.values
            for seed in tuning.seeds
        ]

    def cost(self, scale: str) -> tuple[int, float]:
        """Return how many runs a scale has, and the hours in a row, as typed in, not measured."""
        size = self.scale(scale)
        runs = len(size.rows) * len(_points(size.grid)) * len(size.seeds)
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
                kept[axis] = _selected(self.grid[axis], values.split(","))
            except KeyError as error:
                raise ValueError(
                    f"{override}: {error.args[0]} is no value of the study {self.name}: "
                    f"there are {', '.join(self.grid[axis])}"
                ) from None
        return kept, rest


def _points(grid: Mapping[str, Axis]) -> dict[str, tuple[str, ...]]:
    """Return the points of a grid in its order, and their overrides; one named "" for no axis."""
    return {
        " ".join(f"{axis}={value}" for axis, value in zip(grid, values, strict=True)): tuple(
            override
            for axis, value in zip(grid, values, strict=True)
            for override in grid[axis][value]
        )
        for values in product(*grid.values())
    }


def _place(name: str) -> tuple[str, set[str]]:
    """Split the name of rates, "row @ axis=value axis=value", into its row and its axes."""
    row, _, point = name.partition(_AT)
    return row, set(point.split())


def _selected(axis: Axis, values: Iterable[str]) -> Axis:
    """Keep some values of an axis; KeyError for one that it has not."""
    return {value: axis[value] for value in values}


def load_study(name: str, root: Path = CONFIG_DIR) -> Study:
    """Read a study; ValueError naming the studies there are, or the file and key that is wrong."""
    names = option_names("study", root)
    if name not in names:
        near = get_close_matches(name.lower(), names)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"no study {name!r}: there are {', '.join(names)}.{meant}")
    option = next(option for option in options("study", root) if option.name == name)
    read = StudyFile(option.path)
    node = read.node(read.file(), "the file", _KEYS, may=_MAY)
    rows = {
        row: read.overrides(value, f"rows.{row}")
        for row, value in read.mapping(node["rows"], "rows").items()
    }
    if not rows:
        raise read.wrong("rows", "a study compares at least one row")
    grid = {
        axis: _axis(read, axis, value) for axis, value in read.mapping(node["grid"], "grid").items()
    }
    columns = read.texts(node["columns"], "columns")
    return Study(
        name=name,
        description=option.description,
        document=read.text(node["document"], "document"),
        table=read.text(node["table"], "table"),
        claims=read.numbers(node["claims"], "claims"),
        rows=rows,
        grid=grid,
        columns=columns,
        figures=_figures(read, node["figures"], rows, columns),
        scales={
            scale: _scale(read, f"scales.{scale}", value, rows, grid)
            for scale, value in read.mapping(node["scales"], "scales").items()
        },
        document_data=read.text(node.get("document_data", Study.document_data), "document_data"),
    )


def _axis(read: StudyFile, axis: str, value: object) -> Axis:
    """Return the values of an axis: of a list `axis=value`, or what a mapping says."""
    key = f"grid.{axis}"
    if isinstance(value, list):
        return {text: (f"{axis}={text}",) for text in read.texts(value, key)}
    node = read.mapping(value, key)
    if not node:
        raise read.wrong(key, "expected at least one value")
    return {name: read.overrides(item, f"{key}.{name}") for name, item in node.items()}


def _figures(
    read: StudyFile, value: object, rows: Collection[str], columns: Collection[str]
) -> dict[str, dict[str, str | float]]:
    figures: dict[str, dict[str, str | float]] = {}
    for row, said in read.mapping(value, "figures").items():
        read.among([row], rows, f"figures.{row}")
        figures[row] = {}
        for column, figure in read.mapping(said, f"figures.{row}").items():
            key = f"figures.{row}.{column}"
            read.among([column], (*columns, STABILITY), key)
            number = isinstance(figure, int | float) and not isinstance(figure, bool)
            figures[row][column] = float(figure) if number else read.text(figure, key)
    return figures


def _scale(
    read: StudyFile,
    key: str,
    value: object,
    rows: Mapping[str, tuple[str, ...]],
    grid: Mapping[str, Axis],
) -> Scale:
    node = read.node(value, key, _SCALE_KEYS, may=_SCALE_MAY)
    kept = read.texts(node["rows"], f"{key}.rows") if "rows" in node else tuple(rows)
    read.among(kept, rows, f"{key}.rows")
    if kept[0] != next(iter(rows)):
        raise read.wrong(
            f"{key}.rows", f"must begin with {next(iter(rows))}, which all others are compared with"
        )
    axes = dict(grid)
    for axis, values in read.mapping(node.get("grid", {}), f"{key}.grid").items():
        read.among([axis], grid, f"{key}.grid.{axis}")
        names = read.texts(values, f"{key}.grid.{axis}")
        read.among(names, grid[axis], f"{key}.grid.{axis}")
        axes[axis] = _selected(grid[axis], names)
    minutes = node["minutes"]
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes <= 0:
        raise read.wrong(f"{key}.minutes", f"expected a number above 0, found {minutes!r:.60}")
    seeds = read.numbers(node["seeds"], f"{key}.seeds")
    data = read.text(node["data"], f"{key}.data")
    grade = read.text(node.get("grade", "C"), f"{key}.grade")
    read.among([grade], GRADES, f"{key}.grade")
    pilot = node.get("pilot", False)
    if not isinstance(pilot, bool):
        raise read.wrong(f"{key}.pilot", f"expected true or false, found {pilot!r:.60}")
    return Scale(
        overrides=read.overrides(node["overrides"], f"{key}.overrides"),
        seeds=seeds,
        minutes=float(minutes),
        data=data,
        rows=kept,
        grid=axes,
        grade=grade,
        data_name=read.text(node.get("data_name", _short(data)), f"{key}.data_name"),
        rates=_rates(read, f"{key}.rates", node.get("rates", {}), kept, axes),
        pilot=pilot,
        tuning=read_tuning(read, f"{key}.tuning", node.get("tuning"), (*seeds, *axes), rows),
    )


def _short(data: str) -> str:
    """Return the name that the description of data begins with, up to a colon or comma."""
    return data.partition(":")[0].partition(",")[0].strip() or data


def _rates(
    read: StudyFile, key: str, value: object, rows: Sequence[str], grid: Mapping[str, Axis]
) -> dict[str, tuple[str, ...]]:
    """Read what tuning chose; its rows and points exist and it leaves the grid's axes alone."""
    found: dict[str, tuple[str, ...]] = {}
    for name, chosen in read.mapping(value, key).items():
        row, points = _place(name)
        read.among([row], rows, f"{key}.{name}")
        values = [f"{axis}={value}" for axis in grid for value in grid[axis]]
        read.among(sorted(points), values, f"{key}.{name}")
        found[name] = read.overrides(chosen, f"{key}.{name}")
        for override in found[name]:
            if (axis := override.partition("=")[0]) in grid:
                raise read.wrong(f"{key}.{name}", f"{override}: {axis} is an axis of the grid")
    return found


def tuning_of(study: Study, scale: str, load: Callable[[str], Study] = load_study) -> Tuning:
    """Return how a study is tuned at a scale; ValueError where nothing says so."""
    found, by = study.scale(scale).tuning, study
    if isinstance(found, str):
        by = load(found)
        found = by.scale(scale).tuning
    if not isinstance(found, Tuning):
        raise ValueError(
            f"configs/study/{by.name}.yaml: scales.{scale} has no tuning: give key, values, seeds "
            "and score, or in another study the name of this one"
        )
    return found


def unchosen(
    study: Study, scale: str, load: Callable[[str], Study] = load_study
) -> tuple[str, ...]:
    """Name the rows, at their points, that tuning is to choose a value for and has not.

    None at a scale that nothing tunes.
    """
    size = study.scale(scale)
    if size.tuning is None:
        return ()
    key = tuning_of(study, scale, load).key
    return tuple(
        rate_name(row, point)
        for point in _points(size.grid)
        for row in size.rows
        if key not in {each.partition("=")[0] for each in size.chosen(row, point)}
    )


def rate_name(row: str, point: str) -> str:
    """Return the name under which `rates` have what was chosen for a row at a point."""
    return f"{row}{_AT}{point}" if point else row
