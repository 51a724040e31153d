"""Studies: the grid of runs that fills one comparison table of the documents, read from data.

A study is a file of `configs/study` and nothing else: what is compared (`rows`, the first is what
the others are compared with), what is varied for every row (`grid`), which scores are shown, what
the document says, and by scale how large, on which data, with which seeds. No torch, no Hydra.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from normlab.registry import CONFIG_DIR, option_names, options

_KEYS = ("document", "table", "claims", "rows", "grid", "columns", "figures", "scales")
_SCALE_KEYS = ("overrides", "seeds", "minutes", "data")


@dataclass(frozen=True)
class Scale:
    """A size of a study: overrides of every run, seeds, minutes a run takes, and the data."""

    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    minutes: float
    data: str


@dataclass(frozen=True)
class Planned:
    """One run of a study: its row, its point in the grid, its seed, and all its overrides."""

    row: str
    point: str
    seed: int
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A comparison table of a document and how it is filled."""

    name: str
    description: str
    document: str
    table: str
    claims: tuple[int, ...]
    rows: Mapping[str, tuple[str, ...]]
    grid: Mapping[str, tuple[str, ...]]
    columns: tuple[str, ...]
    figures: Mapping[str, Mapping[str, str | float]]
    scales: Mapping[str, Scale]

    @property
    def points(self) -> list[tuple[str, ...]]:
        """Return the points of the grid as overrides, in its order; one empty point for none."""
        keys = list(self.grid)
        return [
            tuple(f"{key}={value}" for key, value in zip(keys, values, strict=True))
            for values in product(*self.grid.values())
        ]

    def scale(self, name: str) -> Scale:
        """Return a scale; ValueError naming those there are."""
        if name not in self.scales:
            raise ValueError(
                f"study {self.name} has no scale={name}: there are {', '.join(self.scales)}"
            )
        return self.scales[name]

    def planned(
        self, scale: str, *, seeds: Sequence[int] | None = None, extra: Sequence[str] = ()
    ) -> list[Planned]:
        """Return all runs, seed by seed, so that a part of them is a whole table of fewer seeds."""
        size = self.scale(scale)
        return [
            Planned(
                row=row,
                point=" ".join(point),
                seed=seed,
                overrides=(
                    *size.overrides,
                    *own,
                    *point,
                    *extra,
                    f"seed={seed}",
                    f"observe.study={self.name}",
                ),
            )
            for seed in (size.seeds if seeds is None else seeds)
            for point in self.points
            for row, own in self.rows.items()
        ]

    def cost(self, scale: str) -> tuple[int, float]:
        """Return how many runs a scale has, and the hours they take one after the other."""
        size = self.scale(scale)
        runs = len(self.rows) * len(self.points) * len(size.seeds)
        return runs, runs * size.minutes / 60


def load_study(name: str, root: Path = CONFIG_DIR) -> Study:
    """Read a study; ValueError naming the studies there are, or the file and key that is wrong."""
    if name not in option_names("study", root):
        raise ValueError(f"no study {name!r}: there are {', '.join(option_names('study', root))}")
    option = next(option for option in options("study", root) if option.name == name)
    read = _Reader(option.path)
    node = read.node(yaml.safe_load(option.path.read_text("utf-8")), "the file", _KEYS)
    rows = {str(k): read.texts(v, f"rows.{k}") for k, v in read.mapping(node, "rows").items()}
    if not rows:
        raise read.wrong("rows", "a study compares at least one row")
    figures = {
        str(row): read.mapping(node["figures"], str(row)) for row in read.mapping(node, "figures")
    }
    for row in figures:
        if row not in rows:
            raise read.wrong(f"figures.{row}", f"no such row: there are {', '.join(rows)}")
    return Study(
        name=name,
        description=option.description,
        document=str(node["document"]),
        table=str(node["table"]),
        claims=tuple(int(claim) for claim in read.texts(node["claims"], "claims")),
        rows=rows,
        grid={str(k): read.texts(v, f"grid.{k}") for k, v in read.mapping(node, "grid").items()},
        columns=read.texts(node["columns"], "columns"),
        figures=figures,
        scales={str(k): _scale(read, str(k), v) for k, v in read.mapping(node, "scales").items()},
    )


def _scale(read: "_Reader", name: str, value: object) -> Scale:
    key = f"scales.{name}"
    node = read.node(value, key, _SCALE_KEYS)
    return Scale(
        overrides=read.texts(node["overrides"], f"{key}.overrides"),
        seeds=tuple(int(seed) for seed in read.texts(node["seeds"], f"{key}.seeds")),
        minutes=float(node["minutes"]),
        data=str(node["data"]),
    )


class _Reader:
    """Reads the nodes of one file; its errors name the file and the key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def wrong(self, key: str, problem: str) -> ValueError:
        return ValueError(f"{self.path}: {key}: {problem}")

    def node(self, value: object, key: str, keys: Sequence[str]) -> dict[str, Any]:
        """Return a mapping that has these keys and no other."""
        if not isinstance(value, dict):
            raise self.wrong(key, f"expected keys and values, found {value!r:.60}")
        for name in keys:
            if name not in value:
                raise self.wrong(key, f"{name} is missing")
        for name in value:
            if name not in keys:
                raise self.wrong(f"{name}", f"no such key: there are {', '.join(keys)}")
        return value

    def mapping(self, node: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = node[key]
        if not isinstance(value, dict):
            raise self.wrong(key, f"expected keys and values, found {value!r:.60}")
        return value

    def texts(self, value: object, key: str) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.wrong(key, f"expected a list, found {value!r:.60}")
        return tuple(str(item) for item in value)
