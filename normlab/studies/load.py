"""Reading a study from its file, and what tuning has chosen for it."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from normlab.registry import CONFIG_DIR, option_names, options
from normlab.studies.file import StudyFile
from normlab.studies.study import (
    GRADES,
    SMOKE,
    STABILITY,
    Axis,
    Scale,
    Study,
    place_of,
    points_of,
    rate_name,
    selected,
)
from normlab.studies.tuning import Tuning, read_tuning, too_few

_KEYS = ("document", "table", "claims", "rows", "grid", "columns", "figures", "scales")
_MAY = ("document_data",)
_SCORE = re.compile(r"(valid|test\w*|stability)/.+")
_SCALE_KEYS = ("overrides", "seeds", "minutes", "data")
_SCALE_MAY = ("rows", "grid", "grade", "data_name", "rates", "pilot", "tuning")


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
    for column in columns:
        if not _SCORE.fullmatch(column):
            raise read.wrong("columns", f"{column} is no score of a record, as test/bleu is")
    claims = read.numbers(node["claims"], "claims")
    numbers = [name.partition("_")[0] for name in option_names("claim", root)]
    known = {int(number) for number in numbers if number.isdecimal()}
    if known and (unknown := set(claims) - known):
        raise read.wrong("claims", f"no {min(unknown)}: normlab claims lists those there are")
    return Study(
        name=name,
        description=option.description,
        document=read.text(node["document"], "document"),
        table=read.text(node["table"], "table"),
        claims=claims,
        rows=rows,
        grid=grid,
        columns=columns,
        figures=_figures(read, node["figures"], rows, columns),
        scales={
            scale: _scale(read, scale, value, rows, grid)
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
    name: str,
    value: object,
    rows: Mapping[str, tuple[str, ...]],
    grid: Mapping[str, Axis],
) -> Scale:
    key = f"scales.{name}"
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
        axes[axis] = selected(grid[axis], names)
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
        tuning=read_tuning(
            read,
            f"{key}.tuning",
            node.get("tuning"),
            (*seeds, *axes),
            rows,
            trial=pilot or name == SMOKE,
        ),
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
        row, points = place_of(name)
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
    # What is enough for a pilot of the other study may be too few here.
    trial = study.scale(scale).pilot or scale == SMOKE
    if (problem := too_few(found.values, trial=trial)) is not None:
        raise ValueError(
            f"configs/study/{by.name}.yaml: scales.{scale}.tuning.values, by which "
            f"{study.name} is tuned too: {problem}"
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
        for point in points_of(size.grid)
        for row in size.rows
        if key not in {each.partition("=")[0] for each in size.chosen(row, point)}
    )
