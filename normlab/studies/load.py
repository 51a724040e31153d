"""Reading and checking the file of a study; every error names the file and the key."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from normlab.config.files import read_yaml
from normlab.config.registry import CONFIG_DIR, option_names, options
from normlab.studies.study import (
    ANALYSES,
    GRADES,
    SMOKE,
    STABILITY,
    Axis,
    Scale,
    Study,
    Tuning,
    place_of,
    points_of,
    rate_name,
    selected,
)

_KEYS = ("document", "table", "claims", "rows", "grid", "columns", "figures", "scales")
_SCORE = re.compile(r"(valid|test\w*|stability)/.+")
_SCALE_KEYS = ("overrides", "seeds", "minutes", "data")
_SCALE_MAY = ("rows", "grid", "grade", "data_name", "rates", "pilot", "tuning")
_TUNING_KEYS = ("key", "values", "seeds", "score")


def load_study(name: str, root: Path = CONFIG_DIR) -> Study:
    """Read a study; ValueError names the existing studies, or the file and key that is wrong."""
    names = option_names("study", root)
    if name not in names:
        near = get_close_matches(name.lower(), names)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"no study {name!r}: there are {', '.join(names)}.{meant}")
    option = next(option for option in options("study", root) if option.name == name)
    read = _Reader(option.path)
    node = read.node(read_yaml(option.path), "the file", _KEYS, may=("document_data",))
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
            raise read.wrong("columns", f"{column} is no score of a record, such as test/bleu")
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


class _Reader:
    """Checks the nodes of one file while they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def wrong(self, key: str, problem: str) -> ValueError:
        return ValueError(f"{self.path}: {key}: {problem}")

    def node(
        self, value: object, key: str, keys: Sequence[str], may: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return a mapping that has all of `keys`, perhaps some of `may`, and no others."""
        node = self.mapping(value, key)
        for name in keys:
            if name not in node:
                raise self.wrong(key, f"{name} is missing")
        self.among(node, (*keys, *may), key)
        return node

    def mapping(self, value: object, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong(key, f"expected keys and values, found {value!r:.60}")
        return {self.text(name, key): item for name, item in value.items()}

    def text(self, value: object, key: str) -> str:
        """Return text; numbers and truth values as one types them on the command line."""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float) or value == "":
            raise self.wrong(key, f"expected text, found {value!r:.60}")
        return str(value)

    def texts(self, value: object, key: str) -> tuple[str, ...]:
        """Return a list of one or more texts without duplicates."""
        if not isinstance(value, list) or not value:
            raise self.wrong(key, f"expected a list, found {value!r:.60}")
        texts = tuple(self.text(item, key) for item in value)
        if twice := [text for text in texts if texts.count(text) > 1]:
            raise self.wrong(key, f"{twice[0]} is given twice")
        return texts

    def numbers(self, value: object, key: str) -> tuple[int, ...]:
        """Return a list of one or more whole numbers without duplicates."""
        texts = self.texts(value, key)
        if wrong := [text for text in texts if not text.isdecimal()]:
            raise self.wrong(key, f"expected whole numbers, found {wrong[0]}")
        return tuple(map(int, texts))

    def overrides(self, value: object, key: str) -> tuple[str, ...]:
        """Return a list of `key=value`, which may be empty."""
        texts = () if value == [] else self.texts(value, key)
        if wrong := [text for text in texts if "=" not in text]:
            raise self.wrong(key, f"expected key=value, found {wrong[0]}")
        return texts

    def among(self, names: Iterable[str], allowed: Collection[str], key: str) -> None:
        if wrong := [name for name in names if name not in allowed]:
            raise self.wrong(key, f"no {wrong[0]!r}: there are {', '.join(allowed)}")


def _axis(read: _Reader, axis: str, value: object) -> Axis:
    """Return an axis: a list means `axis=value` for each, a mapping gives the overrides."""
    key = f"grid.{axis}"
    if isinstance(value, list):
        return {text: (f"{axis}={text}",) for text in read.texts(value, key)}
    node = read.mapping(value, key)
    if not node:
        raise read.wrong(key, "expected at least one value")
    return {name: read.overrides(item, f"{key}.{name}") for name, item in node.items()}


def _figures(
    read: _Reader, value: object, rows: Collection[str], columns: Collection[str]
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
    read: _Reader,
    name: str,
    value: object,
    rows: Mapping[str, tuple[str, ...]],
    grid: Mapping[str, Axis],
) -> Scale:
    key = f"scales.{name}"
    node = read.node(value, key, _SCALE_KEYS, may=_SCALE_MAY)
    baseline = next(iter(rows))
    kept = read.texts(node["rows"], f"{key}.rows") if "rows" in node else tuple(rows)
    read.among(kept, rows, f"{key}.rows")
    if kept[0] != baseline:
        raise read.wrong(
            f"{key}.rows", f"must begin with {baseline}, which all others are compared with"
        )
    axes = dict(grid)
    for axis, values in read.mapping(node.get("grid", {}), f"{key}.grid").items():
        read.among([axis], grid, f"{key}.grid.{axis}")
        names = read.texts(values, f"{key}.grid.{axis}")
        read.among(names, grid[axis], f"{key}.grid.{axis}")
        axes[axis] = selected(grid[axis], names)
    minutes, pilot = node["minutes"], node.get("pilot", False)
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes <= 0:
        raise read.wrong(f"{key}.minutes", f"expected a number above 0, found {minutes!r:.60}")
    if not isinstance(pilot, bool):
        raise read.wrong(f"{key}.pilot", f"expected true or false, found {pilot!r:.60}")
    seeds = read.numbers(node["seeds"], f"{key}.seeds")
    data = read.text(node["data"], f"{key}.data")
    short = data.partition(":")[0].partition(",")[0].strip() or data
    grade = read.text(node.get("grade", "C"), f"{key}.grade")
    read.among([grade], GRADES, f"{key}.grade")
    tuning = node.get("tuning")
    if tuning is not None and not isinstance(tuning, str):
        trial = pilot or name == SMOKE
        tuning = _tuning(read, f"{key}.tuning", tuning, (*seeds, *axes), rows, trial=trial)
    return Scale(
        overrides=read.overrides(node["overrides"], f"{key}.overrides"),
        seeds=seeds,
        minutes=float(minutes),
        data=data,
        rows=kept,
        grid=axes,
        grade=grade,
        data_name=read.text(node.get("data_name", short), f"{key}.data_name"),
        rates=_rates(read, f"{key}.rates", node.get("rates", {}), kept, axes),
        pilot=pilot,
        tuning=tuning,
    )


def _rates(
    read: _Reader, key: str, value: object, rows: Sequence[str], grid: Mapping[str, Axis]
) -> dict[str, tuple[str, ...]]:
    """Read what tuning chose: for existing rows and points, and for no axis of the grid."""
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


def _tuning(
    read: _Reader,
    key: str,
    value: object,
    taken: Collection[int | str],
    rows: Collection[str],
    *,
    trial: bool,
) -> Tuning:
    """Read how rates are chosen; `taken` are the seeds of the scale and the axes of its grid."""
    node = read.node(value, key, _TUNING_KEYS, may=("overrides", "whole_runs"))
    whole = node.get("whole_runs")
    found = Tuning(
        key=read.text(node["key"], f"{key}.key"),
        values=read.texts(node["values"], f"{key}.values"),
        seeds=read.numbers(node["seeds"], f"{key}.seeds"),
        score=read.text(node["score"], f"{key}.score"),
        overrides=read.overrides(node.get("overrides", []), f"{key}.overrides"),
        whole_runs=() if whole is None else read.texts(whole, f"{key}.whole_runs"),
    )
    if (problem := _too_few(found.values, trial=trial)) is not None:
        raise read.wrong(f"{key}.values", problem)
    read.among(found.whole_runs, rows, f"{key}.whole_runs")
    if not found.score.startswith("valid/"):
        raise read.wrong(f"{key}.score", f"{found.score} is no validation score, as valid/bleu is")
    if used := sorted(set(found.seeds) & {*taken, *range(1, ANALYSES[-1] + 1)}):
        raise read.wrong(f"{key}.seeds", f"{used[0]} is a seed of the study: take others, as 101")
    if found.key in taken:
        raise read.wrong(f"{key}.key", f"{found.key} is an axis of the grid")
    return found


def _too_few(values: Collection[str], *, trial: bool) -> str | None:
    """Say why values are too few to choose from; None if they are enough.

    Three are enough: only a value between two others is known not to be at the edge. A `trial`, a
    scale that decides nothing, needs two.
    """
    if len(values) >= (2 if trial else 3):
        return None
    count = "one value is" if len(values) == 1 else f"{len(values)} values are"
    if trial:
        return f"{count} no choice: give two or more"
    return (
        f"{count} no choice: give three or more, as [5e-4, 1e-3, 2e-3]; two are enough at "
        "scale=smoke and for a scale with `pilot: true`"
    )


def tuning_of(study: Study, scale: str, load: Callable[[str], Study] = load_study) -> Tuning:
    """Return how a study is tuned at a scale; ValueError if its file does not say."""
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
    if (problem := _too_few(found.values, trial=trial)) is not None:
        raise ValueError(
            f"configs/study/{by.name}.yaml: scales.{scale}.tuning.values, by which "
            f"{study.name} is tuned too: {problem}"
        )
    return found


def unchosen(
    study: Study, scale: str, load: Callable[[str], Study] = load_study
) -> tuple[str, ...]:
    """Name the rows, at their points, for which tuning has not chosen a value yet.

    Empty for a scale without a tuning.
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
