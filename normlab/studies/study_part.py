"""Parses the command-line arguments that select part of a study: scale, rows, seeds, overrides."""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import yaml

from normlab.config.experiments import EXPERIMENT
from normlab.config.overrides import check_given_once, with_full_keys
from normlab.config.schema import full_key
from normlab.errors import UserError
from normlab.records.point import point_values
from normlab.studies.study import SMOKE, Study, points_of

_KEYS = {"scale": "scale", "seeds": "seeds", "seed": "seeds", "rows": "rows", "row": "rows"}
_OF_ONE_RUN = (EXPERIMENT, "debug")  # keys that apply only to a single run
_MOST_SEEDS = 1000  # maximum number of seeds in a range
_PLAIN_ROW = re.compile(r"[A-Za-z][\w+.-]*")  # needs no quotes and is not the number of a row
_PLAIN_VALUE = re.compile(r"[\w+.-]+")


class StudyPart(NamedTuple):
    """A part of a study: a scale, rows and seeds (None: all), and overrides for every run."""

    scale: str
    rows: list[str] | None
    seeds: list[int] | None
    extra: list[str]

    @classmethod
    def of(cls, study: Study, overrides: Sequence[str]) -> "StudyPart":
        """Parse overrides, of which `scale=`, `rows=` and `seeds=` select a part of the study."""
        pairs = [(each, *each.split("=", 1)) for each in overrides]
        if of_one_run := [key for _, key, _ in pairs if key in _OF_ONE_RUN]:
            key = of_one_run[0]
            raise UserError(f"{key}= is for normlab train; a study's settings are in its file")
        check_given_once([f"{_KEYS.get(key, key)}={value}" for _, key, value in pairs])
        chosen = {_KEYS[key]: value for _, key, value in pairs if key in _KEYS}
        others = [(each, key) for each, key, _ in pairs if key not in _KEYS]
        extra = [each for each, key in others if key in study.grid]  # an axis keeps its name
        extra += with_full_keys([each for each, key in others if key not in study.grid])
        if extra:
            from normlab.config.compose import written_out  # imports Hydra

            extra = written_out(extra)
        scale = chosen.get("scale", SMOKE)
        rows = read_rows(chosen["rows"], study, scale) if "rows" in chosen else None
        seeds = read_seeds(chosen["seeds"]) if "seeds" in chosen else None
        return cls(scale, rows, seeds, extra)


class SmallestPart(NamedTuple):
    """The words that select a part of a study, and its places: rows with points of the grid."""

    words: list[str]
    places: list[tuple[str, str]]


def smallest_part(study: Study, scale: str, places: Collection[tuple[str, str]]) -> SmallestPart:
    """Return the smallest part of a study that contains `places`, each a row and a grid point.

    It contains each of these rows at all combinations of the points' values, so it may have more
    places. A row or an axis that needs no restriction has no word.
    """
    size = study.scale(scale)
    rows = [row for row in size.rows if any(row == each for each, _ in places)]
    words, grid = list[str](), dict(size.grid)
    if len(rows) < len(size.rows):
        numbers = [str(number) for number, row in enumerate(size.rows, 1) if row in rows]
        plain = all(_PLAIN_ROW.fullmatch(row) for row in rows)
        words.append(f"rows={','.join(rows if plain else numbers)}")
    for axis, values in size.grid.items():
        at_points = {point_values(point)[axis] for _, point in places}
        chosen = [value for value in values if value in at_points]
        if len(chosen) < len(values) and all(map(_PLAIN_VALUE.fullmatch, chosen)):
            words.append(f"{axis}={','.join(chosen)}")
            grid[axis] = {value: values[value] for value in chosen}
    return SmallestPart(words, [(row, point) for row in rows for point in points_of(grid)])


def words_by_study(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the overrides of each study in `words`.

    `STUDY:key=value` is only for that study, and replaces a `key=value` for all studies.
    """
    studies = [word for word in words if "=" not in word]
    overrides: dict[str, list[str]] = {name: [] for name in studies}
    of_study: dict[str, list[str]] = {name: [] for name in studies}
    if not studies or len(overrides) < len(studies):
        raise UserError("list each study once, such as normlab study run translation_norms")
    for override in (word for word in words if "=" in word):
        study, colon, _ = override.partition("=")[0].partition(":")
        if colon and study not in overrides:
            raise UserError(
                f"{override}: {study} is not one of the studies to run, {' '.join(overrides)}"
            )
        if colon:
            of_study[study].append(override.removeprefix(f"{study}:"))
        else:
            for name in studies:
                overrides[name].append(override)
    for name, replaced in ((name, {*map(_key, of_study[name])}) for name in studies):
        overrides[name] = [x for x in overrides[name] if _key(x) not in replaced] + of_study[name]
    return overrides


def _key(override: str) -> str:
    """Return the full key of an override; `seeds` and `rows` for their singulars."""
    key = override.partition("=")[0]
    return _KEYS.get(key) or full_key(key)


def read_rows(text: str, study: Study, scale: str) -> list[str]:
    """Return the rows of a scale selected by `rows=`, in the scale's order.

    A row is selected by name or number. A list is `ln,bn` or, if names contain commas,
    `[ln,'bn, padding counted']`. For an unknown row, raises a UserError that lists all rows.
    """
    names = study.scale(scale).rows
    try:
        parts = yaml.load(text if text.startswith("[") else f"[{text}]", Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        parts = [text]
    numbers = {str(number): name for number, name in enumerate(names, 1)}
    for part in parts or [""]:
        if part not in names and str(part) not in numbers:
            known = "; ".join(f"{number} {name}" for number, name in numbers.items())
            raise UserError(f"rows={part!r} is not a row of scale={scale}; choose from {known}")
    chosen = {part if part in names else numbers[part] for part in parts}
    return [name for name in names if name in chosen]


def read_seeds(text: str) -> list[int]:
    """Parse the value of `seeds=`, such as `1,2,3`, `1-5` or a mix, into a list of seeds."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        whole = first.isdecimal() and last.isdecimal()
        if not whole or not int(first) <= int(last) < int(first) + _MOST_SEEDS:
            raise UserError(f"seeds={text}: expected numbers, such as seeds=1,2,3 or seeds=1-5")
        seeds += range(int(first), int(last) + 1)
    return seeds
