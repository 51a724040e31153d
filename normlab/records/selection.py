"""Decides which records fit what is asked for, such as `norm=bn` and `optim.lr=0.001`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from normlab.records.labels import norm_label
from normlab.records.record import RunRecord


class Selection:
    """Records that are asked for again and again: each name is looked up in them once."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        """Choose among records, whose order is kept."""
        self.records = records
        self._places: dict[str, dict[str, list[int]]] = {}

    def select(self, where: Mapping[str, object]) -> list[RunRecord]:
        """Keep the records that fit every `name: value` of `where`, as `RunStore.records` says.

        Raises `ValueError` for a name that no record has.
        """
        kept = range(len(self.records))
        for name, wanted in where.items():
            places = self._by_value(name)
            if self.records and not places:
                raise ValueError(
                    f"no record has the key {name!r}; allowed: {', '.join(self._names())}, "
                    "or a dotted key of the config such as optim.lr"
                )
            fitting = set(places.get(_text(wanted), ()))
            kept = [place for place in kept if place in fitting]
        return [self.records[place] for place in kept]

    def _by_value(self, name: str) -> dict[str, list[int]]:
        """Return the places of the records by what they have under a name, as text."""
        if name not in self._places:
            places: dict[str, list[int]] = {}
            look = _LOOK.get(name) or partial(_option_or_value, name)
            for place, record in enumerate(self.records):
                value = look(record)
                if value is not _NOTHING:
                    places.setdefault(_text(value), []).append(place)
            self._places[name] = places
        return self._places[name]

    def _names(self) -> list[str]:
        groups = {group for record in self.records for group in record.config.get("choices", {})}
        return sorted({*groups, "fingerprint", "norm", "seed", "status"})


def select(records: Sequence[RunRecord], where: Mapping[str, object]) -> list[RunRecord]:
    """Keep the records that fit, as `Selection.select` says."""
    return Selection(records).select(where)


_NOTHING = object()
_LOOK: Mapping[str, Callable[[RunRecord], object]] = {
    "norm": lambda record: norm_label(record.config.get("choices", {})),
    "status": lambda record: record.outcome.status,
    "fingerprint": lambda record: record.fingerprint,
    "seed": lambda record: record.seed,
}


def lookup(record: RunRecord, name: str) -> object:
    """Return what a record has under a name that `RunStore.records` knows, None for nothing."""
    value = (_LOOK.get(name) or partial(_option_or_value, name))(record)
    return None if value is _NOTHING else value


def _option_or_value(name: str, record: RunRecord) -> object:
    """Return the option of a group, or else the value of a dotted key of the config."""
    choices = record.config.get("choices", {})
    if name in choices:
        return choices[name]
    node: object = record.config
    for part in name.split("."):
        children = cast("dict[str, object]", node) if isinstance(node, dict) else {}
        if part not in children:
            return _NOTHING
        node = children[part]
    return node


def _text(value: object) -> str:
    """Write a value as the command line does, so that "32" finds 32 and "true" finds True."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)
