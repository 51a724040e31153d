"""Which part of a study a command line asks for: `rows=` and `seeds=`."""

from collections.abc import Sequence

import yaml

from normlab.studies import Study

_MOST = 1000  # seeds in a range


def read_rows(text: str, study: Study, scale: str) -> list[str]:
    """Return the rows of a study at a scale that `rows=` names, in the order of the scale.

    A row is given by its name, by a beginning that no other row has, or by its number. A list is
    `ln,bn` or, as names may hold commas, `[ln,'bn, padding counted']`; a name that holds a comma
    is found without quotes too. ValueError naming the rows there are.
    """
    names = study.scale(scale).rows
    parts = _listed(text)
    found: set[str] = set()
    while parts:
        count = next(
            (n for n in range(len(parts), 1, -1) if ", ".join(parts[:n]) in study.rows),
            1,
        )
        found.add(_row(", ".join(parts[:count]), names, study, scale))
        parts = parts[count:]
    return [name for name in names if name in found]


def _listed(text: str) -> list[str]:
    """Split a list as YAML writes it, with or without its brackets; all of it is text."""
    inner = text if text.startswith("[") else f"[{text}]"
    try:
        parts = yaml.load(inner, Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        parts = None
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(
            f"rows={text}: expected names or numbers of rows, such as rows=1,3 or "
            "rows=\"[ln,'bn, padding counted']\""
        )
    return parts


def _row(asked: str, names: Sequence[str], study: Study, scale: str) -> str:
    if asked in names:
        return asked
    there = "; ".join(f"{n} {name}" for n, name in enumerate(names, 1))
    if asked in study.rows:
        raise ValueError(
            f"rows: {asked!r} is a row of the study, but not of scales.{scale}.rows in "
            f"configs/study/{study.name}.yaml: add it there, or take of {there}"
        )
    if asked.isdecimal() and 1 <= int(asked) <= len(names):
        return names[int(asked) - 1]
    near = [name for name in names if name.startswith(asked)]
    if len(near) == 1:
        return near[0]
    fits = f"fits {' and '.join(map(repr, near))}" if near else "is no row"
    raise ValueError(f"rows: {asked!r} {fits}: there are {there}")


def read_seeds(text: str) -> list[int]:
    """Return the seeds that `seeds=` names: `1,2,3`, `1-5` or both."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()):
            raise ValueError(f"seeds={text}: expected numbers, such as seeds=1,2,3 or seeds=1-5")
        if not int(first) <= int(last) < int(first) + _MOST:
            raise ValueError(f"seeds={text}: {part.strip()} is no range, such as 1-5")
        seeds += range(int(first), int(last) + 1)
    return seeds
