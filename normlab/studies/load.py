"""Reads and checks a study's file. Every error names the file and the key."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from normlab.config.conversion import Text, convert, wrong_value
from normlab.config.folders import of_your_own
from normlab.config.overrides import check_given_once, with_full_keys
from normlab.config.registry import options
from normlab.config.schema import full_key
from normlab.config.suggestions import choice_of, did_you_mean
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError
from normlab.records.point import place_text, point_text, point_values, split_place
from normlab.studies.study import (
    ANALYSES,
    SMOKE,
    STATEMENT,
    Scale,
    Study,
    Texts,
    Tuning,
    points_of,
)

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_LEAST = "list at least three (two at scale=smoke and with `pilot: true`)"


class _Grid(Struct):
    """The values per axis of a scale, as a study's file has them."""

    grid: dict[Text, Texts] = field(default_factory=dict)


class _Grids(Struct):
    scales: dict[str, _Grid] = field(default_factory=dict)


def load_study(name: str, configs: Path | None = None) -> Study:
    """Read a study. Raise UserError if no study has this name, or if its file is invalid.

    `configs` replaces normlab's configs. The user's folders are also searched. In the file, an axis
    may be a list of values, each of which stands for the override `axis=value`.
    """
    known = {option.name: option for option in options("study", configs)}
    if name not in known:
        choice = choice_of([*known], "normlab list studies", did_you_mean(name, [*known]))
        raise UserError(f"no study {name!r}{choice}.{of_your_own()}")
    path = known[name].path
    content = read_yaml(path, as_text=True)  # so that values stay as written: `010`, `no`
    if isinstance(content, dict):
        _among(path, "the file", content, [part.name for part in fields(Study)])
        _convert_lists(path, content)
        content |= {"name": name, "description": known[name].description}
    study = _with_full_keys(path, convert(content, Study, path, strict=False))
    convert(content, _Grids, path)
    _among(path, "article_values", study.article_values, study.rows)
    for row, hint in study.article_values.items():
        _among(path, f"article_values.{row}", hint, (*study.columns, STATEMENT))
    for name in study.at:
        _check_place(path, f"at.{name}", name, study.rows, study.grid)
    for each in study.literature:
        _among(path, "literature", [each.row], study.rows)
        _among(path, "literature", [each.minus] if each.minus else [], study.rows)
        _among(path, "literature", [each.column], study.columns)
        _among(path, "literature", [each.scale], study.scales)
        points = points_of(study.grid)
        _among(path, "literature", [each.at, *([each.minus_at] if each.minus_at else [])], points)
        if each.by == "sign" and min(each.number) <= 0 <= max(each.number):
            problem = f"{each.what!r}: by: sign needs numbers above 0, or numbers below 0"
            raise wrong_value(path, "literature", problem)
    scales = {scale: _checked(path, study, scale) for scale in study.scales}
    return replace(study, scales=scales)


def _with_full_keys(path: Path, study: Study) -> Study:
    """Return a study whose overrides have full keys: `optim.lr=1e-3` instead of `lr=1e-3`.

    Otherwise the short key of a scale would not be replaced by the full key of a row or a rate.
    Raises UserError for a list of overrides that sets a key twice.
    """

    def full(key: str, overrides: Sequence[str]) -> tuple[str, ...]:
        try:
            check_given_once(overrides)
        except UserError as error:
            raise wrong_value(path, key, str(error)) from None
        return tuple(with_full_keys(overrides))

    def all_full(key: str, table: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        return {name: full(f"{key}.{name}", overrides) for name, overrides in table.items()}

    def of_scale(key: str, scale: Scale) -> Scale:
        tuning = scale.tuning
        if isinstance(tuning, Tuning):
            more = full(f"{key}.tuning.overrides", tuning.overrides)
            tuning = structs.replace(tuning, key=full_key(tuning.key), overrides=more)
        overrides = full(f"{key}.overrides", scale.overrides)
        rates = all_full(f"{key}.rates", scale.rates)
        return structs.replace(scale, overrides=overrides, rates=rates, tuning=tuning)

    return replace(
        study,
        rows=all_full("rows", study.rows),
        grid={axis: all_full(f"grid.{axis}", values) for axis, values in study.grid.items()},
        at=all_full("at", study.at),
        scales={name: of_scale(f"scales.{name}", scale) for name, scale in study.scales.items()},
    )


def _convert_lists(path: Path, content: dict[str, Any]) -> None:
    """Convert the lists of axes in a study's content to mappings, and numbers in article values."""
    if isinstance(grid := content.get("grid"), dict):
        for axis, values in grid.items():
            if isinstance(values, list):
                _each_once(path, f"grid.{axis}", values)
                grid[axis] = {str(value): [f"{axis}={value}"] for value in values}
    if isinstance(rows := content.get("article_values"), dict):
        for row, values in rows.items():
            if isinstance(values, dict):
                rows[row] = {column: _number_or_text(value) for column, value in values.items()}


def _number_or_text(value: Any) -> Any:
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _each_once(path: Path, key: str, values: Sequence[Any]) -> None:
    """Raise UserError if a list contains a value twice."""
    if twice := [value for number, value in enumerate(values) if value in values[:number]]:
        raise wrong_value(path, key, f"{twice[0]} occurs twice")


def _among(path: Path, key: str, names: Collection[str], allowed: Collection[str]) -> None:
    if wrong := [name for name in names if name not in allowed]:
        raise wrong_value(
            path, key, f"{wrong[0]!r} does not exist; choose from {', '.join(allowed)}"
        )


def _checked(path: Path, study: Study, name: str) -> Scale:
    """Check a scale. Return it with its rows filled in, and the grid limited to its values."""
    key, scale = f"scales.{name}", study.scales[name]
    rows = scale.rows or tuple(study.rows)
    _among(path, f"{key}.rows", rows, study.rows)
    if rows[0] != study.baseline:
        problem = f"must begin with {study.baseline}, which all others are compared with"
        raise wrong_value(path, f"{key}.rows", problem)
    _each_once(path, f"{key}.rows", rows)
    _each_once(path, f"{key}.seeds", scale.seeds)
    grid = dict(study.grid)
    _among(path, f"{key}.grid", scale.grid, grid)
    for axis, values in scale.grid.items():
        _among(path, f"{key}.grid.{axis}", values, grid[axis])
        _each_once(path, f"{key}.grid.{axis}", values)
        grid[axis] = {value: grid[axis][value] for value in values}
    axes = [*map(full_key, grid)]
    for rate, chosen in scale.rates.items():
        _check_place(path, f"{key}.rates.{rate}", rate, rows, grid)
        if of_axes := [each for each in chosen if each.partition("=")[0] in axes]:
            raise wrong_value(path, f"{key}.rates.{rate}", f"{of_axes[0]} sets an axis of the grid")
    if isinstance(tuning := scale.tuning, Tuning):
        key = f"{key}.tuning"
        _check_choice(path, f"{key}.values", tuning, scale, name)
        _each_once(path, f"{key}.values", tuning.values)
        _each_once(path, f"{key}.seeds", tuning.seeds)
        _among(path, f"{key}.whole_runs", tuning.whole_runs, rows)
        if used := sorted(set(tuning.seeds) & {*scale.seeds, *range(1, ANALYSES[-1] + 1)}):
            raise wrong_value(
                path, f"{key}.seeds", f"{used[0]} is a seed of the study; use others, such as 101"
            )
        if tuning.key in axes:
            raise wrong_value(path, f"{key}.key", f"{tuning.key} is an axis of the grid")
    return structs.replace(scale, rows=rows, grid=grid, data_name=scale.data_name or scale.data)


def _check_place(path: Path, key: str, name: str, rows: Collection[str], grid: Any) -> None:
    """Raise UserError if "row @ axis=value ..." names a row or a point that does not exist."""
    row, point = split_place(name)
    _among(path, key, [row], rows)
    at = [point_text({axis: value}) for axis, value in point_values(point).items()]
    _among(path, key, at, [point_text({axis: value}) for axis in grid for value in grid[axis]])


def _check_choice(path: Path, key: str, tuning: Tuning, scale: Scale, name: str) -> None:
    """Raise UserError for fewer than three values, because then each one is at the edge."""
    decides = not scale.pilot and name != SMOKE
    if len(tuning.values) < (3 if decides else 2):
        raise wrong_value(path, key, f"too few values ({len(tuning.values)}): {_LEAST}")


def tuning_of(study: Study, scale: str, load: Callable[[str], Study] = load_study) -> Tuning:
    """Return the tuning of a study at a scale, or raise UserError if the file has none."""
    tuning, by, size = study.scale(scale).tuning, study, scale
    if isinstance(tuning, str) and tuning in study.scales:
        size, tuning = tuning, study.scale(tuning).tuning
    elif isinstance(tuning, str):
        by = load(tuning)
        tuning = by.scale(scale).tuning
    path, key = Path(f"study/{by.name}.yaml"), f"scales.{size}.tuning"
    if not isinstance(tuning, Tuning):
        other = "or the name of a scale or of a study"
        raise wrong_value(path, key, f"is missing; set key, values, seeds and score, {other}")
    _check_choice(path, f"{key}.values, for {study.name}", tuning, study.scale(scale), scale)
    return tuning


def unchosen(
    study: Study, scale: str, load: Callable[[str], Study] = load_study
) -> tuple[str, ...]:
    """Return the rows, with their points, for which a scale with tuning has no chosen value yet."""
    size = study.scale(scale)
    if size.tuning is None:
        return ()
    key = tuning_of(study, scale, load).key
    return tuple(
        place_text(row, point)
        for point, row in product(points_of(size.grid), size.rows)
        if key not in {each.partition("=")[0] for each in size.chosen(row, point)}
    )
