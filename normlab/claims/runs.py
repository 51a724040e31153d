"""Decides which runs a comparison is about, and which two settings differ in nothing else.

A setting is the seeds of one fingerprint, joined by `records.aggregate.Cell`, which refuses what is
not comparable. Two settings make a pair where their configs differ only in what is compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from normlab.claims.timings import REPORT, Timings, read_timings
from normlab.records.aggregate import Cell, group
from normlab.records.fingerprint import ABSENT, varying_keys, without
from normlab.records.record import RunRecord
from normlab.records.selection import Selection
from normlab.records.store import RunStore

# A choice of `norm` is the label of all its sites.
_SITES = ("norm", "encoder_norm", "decoder_norm", "ffn_inner_norm", "embedding_norm")
# What both sides of a pair share, whatever is compared. The number of parameters is a norm's own.
_SHARED = ("source", "sizes", "checksums"), ("precision", "world_size")


@dataclass(frozen=True)
class Runs:
    """Records and where each lies, by its run id, and what was timed.

    `damaged` says what could not be read.
    """

    records: Sequence[RunRecord] = ()
    folders: Mapping[str, str] | None = None
    damaged: Sequence[str] = ()
    timings: Sequence[Timings] = ()

    @classmethod
    def read(cls, places: Iterable[Path], *, root: Path) -> "Runs":
        """Read all records below some folders; their own are named relative to `root` if there.

        A run found twice with the same scores, such as the committed copy of one, counts once.
        """
        found: dict[str, RunRecord] = {}
        twice: list[RunRecord] = []
        folders: dict[str, str] = {}
        damaged: list[str] = []
        timings: list[Timings] = []
        for place in places:
            store, top = RunStore(place), _relative(place, root)
            try:
                timed = read_timings(place, named=(top / REPORT).as_posix())
                timings += [] if timed is None else [timed]
            except ValueError as error:
                damaged.append(str(error))
            for folder, record in store.entries():
                known = found.setdefault(record.run_id, record)
                if known is not record and known.scores != record.scores:
                    twice.append(record)
                    damaged.append(
                        f"{folder}: the same run as in {folders[record.run_id]}, with other "
                        "scores, so neither counts; remove one of the two"
                    )
                folders.setdefault(record.run_id, (top / folder.relative_to(place)).as_posix())
            damaged += [message for _, message in store.damaged]
        return cls([*found.values(), *twice], folders, damaged, timings)

    def folder(self, record: RunRecord) -> str:
        """Return where a record lies, or its run id where it lies nowhere."""
        return (self.folders or {}).get(record.run_id, record.run_id)

    def settings(self, where: Mapping[str, object]) -> tuple[list[Cell], list[str]]:
        """Return the settings that fit, and why runs of others could not be joined."""
        try:
            chosen = self._selection.select(where)
        except ValueError:  # a key that no run has yet, such as one of a task that nobody ran
            return [], []
        cells: list[Cell] = []
        refused: list[str] = []
        for members in group(chosen).values():
            joined = self._join(members)
            if isinstance(joined, str):
                refused.append(joined)
            else:
                cells.append(joined)
        return cells, refused

    def _join(self, members: Sequence[RunRecord]) -> Cell | str:
        """Join seeds, or say why they cannot be; comparisons ask for the same ones many times."""
        key = tuple(map(id, members))
        if key not in self._joined:
            try:
                self._joined[key] = Cell.of(members)
            except ValueError as error:
                self._joined[key] = str(error)
        return self._joined[key]

    @cached_property
    def _selection(self) -> Selection:
        return Selection(self.records)

    @cached_property
    def _joined(self) -> dict[tuple[int, ...], Cell | str]:
        return {}


def _relative(place: Path, root: Path) -> Path:
    resolved = place.resolve()
    inside = resolved.is_relative_to(root.resolve())
    return resolved.relative_to(root.resolve()) if inside else place


def pairs(
    first: Iterable[Cell], second: Sequence[Cell], may_differ: Iterable[str]
) -> list[tuple[Cell, Cell]]:
    """Return the settings of both sides that differ in nothing but the keys that may."""
    allowed = tuple(name for key in may_differ for name in _spelled(key))
    others: dict[tuple[str, ...], list[Cell]] = {}
    for cell in second:
        others.setdefault(without(cell.parts, allowed), []).append(cell)
    return [(a, b) for a in first for b in others.get(without(a.parts, allowed), ())]


def _spelled(key: str) -> tuple[str, ...]:
    """Return the dotted keys of the config that a key stands for; tasks repeat some of them."""
    if key == "norm":
        return _SITES
    dotted = key.replace("/", ".")
    return dotted, f"task.{dotted}"


def mismatch(a: Cell, b: Cell) -> str | None:
    """Say in what data or precision two settings differ, which no comparison survives."""
    first, second = a.records[0], b.records[0]
    for name, keys in zip(("data", "environment"), _SHARED, strict=True):
        for key in keys:
            values = [getattr(record, name).get(key) for record in (first, second)]
            if values[0] != values[1]:
                return f"{name}.{key} is {values[0]!r:.60} and {values[1]!r:.60}"
    return None


def labels(cells: Sequence[Cell]) -> list[str]:
    """Say for each setting what sets it apart from the others: `norm.padding=include`."""
    keys = [key for key, _ in varying_keys([cell.parts for cell in cells])]
    shown = [key for key in keys if not key.endswith("_target_") and not key.startswith("task.")]
    return [
        " ".join(
            f"{key}={value}"
            for key in shown
            if (value := _value(cell.config, key)) not in (ABSENT, None)
        )
        for cell in cells
    ]


def _value(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return ABSENT
        node = node[part]
    return node
