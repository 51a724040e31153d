"""Names of the rows of tables: `ln, 3,000 steps`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from normlab.records.grouping import grouped
from normlab.records.pairs import ABSENT, ROW_KEYS
from normlab.reports.arrangement.settings import Label, Settings, differing_settings
from normlab.reports.setting_names import phrase

PLACEMENT = "placement"
BATCH = {"batch_size", "max_tokens"}
"""The keys of the batch size, in sequences or in tokens."""
_LIMITS = {"budget.steps", "budget.tokens", "budget.epochs", "budget.minutes"}
"""The keys that limit the length of training."""


@dataclass(frozen=True)
class RowName:
    """The name of a row: its norms, its placement or task, and its settings in words.

    `keys` are the config keys of the settings. `shown` are readable names that replace the norms.
    `chosen` is the user's own name for the row, which replaces everything.
    """

    norms: tuple[str, ...]
    where: str = ""
    settings: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    chosen: str = ""

    @property
    def norm(self) -> str:
        """The label of the norms, such as `bn` or `bn+ln` (encoder+decoder)."""
        return "+".join(self.norms)

    @property
    def text(self) -> str:
        return self.chosen or ", ".join([self._start, *self.settings])

    @property
    def in_sentence(self) -> str:
        """The name for a sentence, with the settings in brackets: `bn (padding counted)`."""
        if self.chosen or not self.settings:
            return self.text
        return f"{self._start} ({', '.join(self.settings)})"

    @property
    def _start(self) -> str:
        is_plain = self.shown in ((), self.norms)
        return (self.norm if is_plain else " + ".join(self.shown)) + self.where


def rows_called(word: str, rows: Sequence[RowName]) -> list[RowName]:
    """Return the rows that are called `word` or, if there are none, the rows with that norm."""
    of_name = [row for row in rows if row.text == word]
    return of_name or [row for row in rows if row.norm == word]


def row_names(experiments: Sequence[Settings], axes: Sequence[str] = ()) -> list[RowName]:
    """Name experiments by their norm and the settings in which they differ, except `axes`.

    If a single setting differs, it is in every name. If several differ, they are only in names that
    would be identical without them, and only as many as needed.
    """
    names = _shortest([each.label for each in experiments], axes)
    differing = differing_settings(experiments)
    keys = [key for key in differing if key not in axes and not f"{key}.".startswith(ROW_KEYS)]
    if len(keys) == 1:
        names = _extended(names, differing, keys)
    below_axes = tuple(f"{axis}." for axis in axes)
    for members in grouped((name, n) for n, name in enumerate(names)).values():
        of_group = {
            key: values
            for key, values in differing_settings([experiments[n] for n in members]).items()
            if not f"{key}.".startswith(below_axes)
        }
        longer = _extended([names[n] for n in members], of_group, fewest(of_group))
        for n, name in zip(members, longer, strict=True):
            names[n] = name
    return names


def _shortest(labels: Sequence[Label], axes: Sequence[str]) -> list[RowName]:
    """Name experiments by their norms, and by placement, task and batch size if these differ."""
    shows_placement = PLACEMENT not in axes and len({each.placement for each in labels}) > 1
    shows_task = len({each.task for each in labels}) > 1
    shows_batch = not BATCH & {*axes} and len({each.batch for each in labels}) > 1
    names: list[RowName] = []
    for label in labels:
        places = [*([label.placement] if shows_placement else []), *([label.task] * shows_task)]
        where = "".join(f" {place}" for place in places if place != "-")
        names.append(RowName(label.norms, where, (label.batch,) if shows_batch else ()))
    return names


def _extended(
    names: Sequence[RowName], differing: Mapping[str, Sequence[Any]], keys: Sequence[str]
) -> list[RowName]:
    """Return the names with the settings `keys` added in words.

    `differing` has the values of each setting, one per name.
    """
    return [
        replace(
            name,
            settings=(
                *name.settings,
                *phrases({key: values[n] for key, values in differing.items()}, keys),
            ),
            keys=(*name.keys, *keys),
        )
        for n, name in enumerate(names)
    ]


def fewest(differing: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a few keys that distinguish the experiments as well as the full list does."""
    chosen: list[str] = []

    def kinds(keys: Sequence[str]) -> int:
        return len({*map(repr, zip(*(differing[key] for key in keys), strict=True))}) if keys else 1

    while kinds(chosen) < kinds([*differing]):
        chosen.append(max(differing, key=lambda key: kinds([*chosen, key])))
    return [key for key in differing if key in chosen]


def phrases(settings: Mapping[str, Any], shown: Sequence[str]) -> list[str]:
    """Return the `shown` settings in words.

    A training limit that is not set is replaced by those that are: runs of 12,000 tokens, compared
    with runs of 6 steps, are described by their tokens, not as runs without steps.
    """
    unset = {key for key in _LIMITS & {*shown} if settings[key] is None}
    limits = [key for key in settings if key in _LIMITS and settings[key] is not None]
    keys = [*shown, *(key for key in limits if unset and key not in shown)]
    return [
        phrase(key, settings[key]) for key in keys if key not in unset and settings[key] != ABSENT
    ]
