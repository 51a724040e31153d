"""Reading and checking the file of a study; every error names the file and the key."""

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from normlab.config.registry import CONFIG_DIR, option_names, options, read_yaml
from normlab.studies.study import (
    ANALYSES,
    SMOKE,
    STABILITY,
    Axis,
    Overrides,
    Scale,
    Study,
    Text,
    Texts,
    Tuning,
    place_of,
    points_of,
    rate_name,
    selected,
)

_T = TypeVar("_T")
_AXES = dict[str, Texts | Annotated[dict[Text, Overrides], Meta(min_length=1)]]


class _File(Struct, forbid_unknown_fields=True):
    """The file of a study; a list of an axis means `axis=value` for each value."""

    document: Text
    table: Text
    claims: Annotated[tuple[int, ...], Meta(min_length=1)]
    rows: Annotated[dict[Text, Overrides], Meta(min_length=1)]
    grid: _AXES
    columns: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^(valid|test\w*|stability)/.+")], ...],
        Meta(min_length=1),
    ]
    figures: dict[str, dict[str, Any]]
    scales: dict[str, Any]
    document_data: Text = Study.document_data


def load_study(name: str, root: Path = CONFIG_DIR) -> Study:
    """Read a study; ValueError names the existing studies, or the file and key that is wrong."""
    names = option_names("study", root)
    if name not in names:
        near = get_close_matches(name.lower(), names)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"no study {name!r}: there are {', '.join(names)}.{meant}")
    option = next(option for option in options("study", root) if option.name == name)
    path = option.path
    file = convert(_typed(read_yaml(path)), _File, path, strict=False)
    numbers = [name.partition("_")[0] for name in option_names("claim", root)]
    known = {int(number) for number in numbers if number.isdecimal()}
    if known and (unknown := set(file.claims) - known):
        raise _wrong(path, "claims", f"no {min(unknown)}: normlab claims lists those there are")
    _among(path, "figures", file.figures, file.rows)
    figures: dict[str, dict[str, float | str]] = {}
    for row, said in file.figures.items():
        _among(path, f"figures.{row}", said, (*file.columns, STABILITY))
        figures[row] = convert({"figures": said}, _Figures, path).figures
    grid = {
        axis: values if isinstance(values, dict) else {each: (f"{axis}={each}",) for each in values}
        for axis, values in file.grid.items()
    }
    return Study(
        name=name,
        description=option.description,
        grid=grid,
        figures=figures,
        scales={
            scale: _scale(path, scale, value, file.rows, grid)
            for scale, value in file.scales.items()
        },
        **{key: getattr(file, key) for key in ("document", "table", "claims", "rows", "columns")},
        document_data=file.document_data,
    )


class _Figures(Struct):
    figures: dict[str, float | str]


def _typed(node: Any, *, key: object = "") -> Any:
    """Return numbers and truth values as one types them on the command line, but for `figures`."""
    if isinstance(node, dict) and key != "figures":
        return {_typed(name): _typed(value, key=name) for name, value in node.items()}
    if isinstance(node, list):
        return [_typed(value) for value in node]
    if isinstance(node, bool):
        return str(node).lower()
    return str(node) if isinstance(node, int | float) else node


def convert(content: Any, kind: type[_T], path: Path, key: str = "", *, strict: bool = True) -> _T:
    """Read a mapping; ValueError names the file, the key in full and what was found there.

    Unless `strict`, text may stand for a number or a truth value.
    """
    if not isinstance(content, dict):
        raise _wrong(path, key, f"expected keys and values, found {content!r:.60}")
    for name, items in content.items():
        texts = [item for item in items if isinstance(item, str)] if isinstance(items, list) else []
        if twice := [text for text in texts if texts.count(text) > 1]:
            raise _wrong(path, f"{key}.{name}".lstrip("."), f"{twice[0]} is given twice")
    try:
        return msgspec.convert(content, kind, strict=strict)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        below = place.rstrip("`").removeprefix(".")
        own_check = re.match(r"([\w.@]+): (.+)", problem)  # of a `__post_init__`
        if own_check:
            below, problem = own_check[1], own_check[2]
        if "unknown field" in problem:
            problem += f"; there are {', '.join(getattr(kind, '__struct_encode_fields__', ()))}"
        first = re.match(r"\w+", below)
        if first and "[...]" in below:
            below = below.replace("[...]", f".{_culprit(content, kind, first[0], strict)}", 1)
        if first and first[0] in content and not own_check:
            problem += f", found {content[first[0]]!r:.60}"
        where = ".".join(each for each in (key, below) if each)
        raise _wrong(path, where, problem) from None


def _culprit(content: dict[str, Any], kind: type, field: str, strict: bool) -> str:
    """Return the key of a mapping at which its conversion fails."""
    for name, item in content[field].items():
        try:
            msgspec.convert({**content, field: {name: item}}, kind, strict=strict)
        except msgspec.ValidationError:
            return name
    return "..."


def _wrong(path: Path, key: str, problem: str) -> ValueError:
    return ValueError(f"{path}: {key or 'the file'}: {problem}")


def _among(path: Path, key: str, names: Collection[str], allowed: Collection[str]) -> None:
    if wrong := [name for name in names if name not in allowed]:
        raise _wrong(path, key, f"no {wrong[0]!r}: there are {', '.join(allowed)}")


def _scale(
    path: Path, name: str, value: Any, rows: Mapping[str, Overrides], grid: Mapping[str, Axis]
) -> Scale:
    key = f"scales.{name}"
    scale = convert(value, Scale, path, key, strict=False)
    kept = scale.rows or tuple(rows)
    _among(path, f"{key}.rows", kept, rows)
    if kept[0] != (baseline := next(iter(rows))):
        problem = f"must begin with {baseline}, which all others are compared with"
        raise _wrong(path, f"{key}.rows", problem)
    axes = dict(grid)
    _among(path, f"{key}.grid", scale.grid, grid)
    for axis, values in scale.grid.items():
        _among(path, f"{key}.grid.{axis}", values, grid[axis])
        axes[axis] = selected(grid[axis], values)
    for rate, chosen in scale.rates.items():
        row, points = place_of(rate)
        _among(path, f"{key}.rates.{rate}", [row], kept)
        values = [f"{axis}={value}" for axis in axes for value in axes[axis]]
        _among(path, f"{key}.rates.{rate}", sorted(points), values)
        if own := [each for each in chosen if each.partition("=")[0] in axes]:
            raise _wrong(path, f"{key}.rates.{rate}", f"{own[0]}: is an axis of the grid")
    if isinstance(scale.tuning, Tuning):
        _check_tuning(path, f"{key}.tuning", scale.tuning, scale, axes, rows, trial=name == SMOKE)
    short = scale.data.partition(":")[0].partition(",")[0].strip() or scale.data
    return structs.replace(scale, rows=kept, grid=axes, data_name=scale.data_name or short)


def _check_tuning(
    path: Path,
    key: str,
    tuning: Tuning,
    scale: Scale,
    axes: Mapping[str, Axis],
    rows: Collection[str],
    *,
    trial: bool,
) -> None:
    if problem := _too_few(tuning.values, trial=trial or scale.pilot):
        raise _wrong(path, f"{key}.values", problem)
    _among(path, f"{key}.whole_runs", tuning.whole_runs, rows)
    if used := sorted(set(tuning.seeds) & {*scale.seeds, *range(1, ANALYSES[-1] + 1)}):
        raise _wrong(path, f"{key}.seeds", f"{used[0]} is a seed of the study: take others, as 101")
    if tuning.key in axes:
        raise _wrong(path, f"{key}.key", f"{tuning.key} is an axis of the grid")


def _too_few(values: Collection[str], *, trial: bool) -> str | None:
    """Return why values are too few to choose from; None if they are enough.

    Only a value between two others is known not to be at the edge. A `trial`, a scale that decides
    nothing, needs two.
    """
    if len(values) >= (2 if trial else 3):
        return None
    least = "two" if trial else "three (two at scale=smoke and for a `pilot: true`)"
    return f"{len(values)} is no choice: give at least {least}"


def tuning_of(study: Study, scale: str, load: Callable[[str], Study] = load_study) -> Tuning:
    """Return how a study is tuned at a scale; ValueError if its file does not say."""
    found, by = study.scale(scale).tuning, study
    if isinstance(found, str):
        by = load(found)
        found = by.scale(scale).tuning
    key = f"configs/study/{by.name}.yaml: scales.{scale}.tuning"
    if not isinstance(found, Tuning):
        raise ValueError(f"{key}: missing; give key, values, seeds and score, or name a study")
    # What is enough for a pilot of the other study may be too few here.
    trial = study.scale(scale).pilot or scale == SMOKE
    if problem := _too_few(found.values, trial=trial):
        raise ValueError(f"{key}.values, by which {study.name} is tuned too: {problem}")
    return found


def unchosen(
    study: Study, scale: str, load: Callable[[str], Study] = load_study
) -> tuple[str, ...]:
    """Name the rows, at their points, that a scale with a tuning has no tuned value for yet."""
    size = study.scale(scale)
    if size.tuning is None:
        return ()
    key = tuning_of(study, scale, load).key
    return tuple(
        rate_name(row, point)
        for point, row in product(points_of(size.grid), size.rows)
        if key not in {each.partition("=")[0] for each in size.chosen(row, point)}
    )
