"""The rows of `normlab compare`: what names each, and what sets it apart from its like."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normlab.records.aggregate import Cell
from normlab.records.fingerprint import varying
from normlab.records.labels import corpus_label, placement_label

NAMED = ("norm", "placement", "task", "corpus", "batch")
_SHOWN = ("norm", "placement", "task", "task/corpus")


@dataclass(frozen=True)
class Row:
    """A row of the table: its cell, what it is named by, and what sets it apart from its like."""

    cell: Cell
    names: tuple[str, ...]
    also: str = ""
    label: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        """Return task and corpus: rows of another have other scores and another baseline."""
        return self.names[2], self.names[3]


def named_rows(cells: Sequence[Cell]) -> list[Row]:
    """Name the rows; the label of each has what not all of them share."""
    names = [_names(cell) for cell in cells]
    also = _apart_from_like(names, cells)
    vary = [n for n in range(1, len(NAMED)) if len({each[n] for each in names}) > 1]
    return [
        Row(cell, own, apart, " ".join([own[0], *(own[n] for n in vary), apart]).strip())
        for cell, own, apart in zip(cells, names, also, strict=True)
    ]


def _names(cell: Cell) -> tuple[str, ...]:
    task, config = cell.choice("task"), cell.config
    named = (
        cell.norm,
        placement_label(config.get("choices", {}), config),
        task,
        corpus_label(config),
    )
    return *(name or "-" for name in named), _batch(cell)


def _batch(cell: Cell) -> str:
    size, tokens = cell.config.get("batch_size"), cell.config.get("max_tokens")
    batch = str(size) if size is not None else f"{tokens} tokens" if tokens is not None else "-"
    accumulate = cell.config.get("accumulate") or 1
    return batch if accumulate == 1 else f"{accumulate} x {batch}"


def _apart_from_like(names: Sequence[tuple[str, ...]], cells: Sequence[Cell]) -> list[str]:
    """Say for rows that are named alike what sets them apart."""
    alike: dict[tuple[str, ...], list[Cell]] = {}
    for name, cell in zip(names, cells, strict=True):
        alike.setdefault(name, []).append(cell)
    said = {
        cell.fingerprint: text
        for members in alike.values()
        for cell, text in zip(members, _apart(members), strict=True)
    }
    return [said[cell.fingerprint] for cell in cells]


def _apart(cells: Sequence[Cell]) -> list[str]:
    groups = sorted({key for cell in cells for key in cell.config.get("choices", {})})
    named = [
        name
        for name in groups
        if name not in _SHOWN and len({cell.choice(name) for cell in cells}) > 1
    ]
    apart = _without_repeats(varying([cell.parts for cell in cells]))
    # Where the option differs its name says more than all the values below it.
    return [
        " ".join(
            [
                *(f"{name}={cell.choice(name)}" for name in named),
                *(f"{k}={value}" for k, value in values.items() if k.split(".")[0] not in named),
            ]
        )
        for cell, values in zip(cells, apart, strict=True)
    ]


def _without_repeats(experiments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out keys that repeat another in all experiments, as `schedule.lr` does `optim.lr`."""
    told: dict[tuple[str, str], str] = {}
    for key in experiments[0]:
        values = repr([each[key] for each in experiments])
        told.setdefault((key.rpartition(".")[2], values), key)
    kept = set(told.values())
    return [{k: value for k, value in each.items() if k in kept} for each in experiments]
