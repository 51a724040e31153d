"""Names of the rows of tables: `ln, 3,000 steps`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from normlab.config.registry import option_names
from normlab.records.grouping import grouped
from normlab.records.labels import corpus_label, norms_of, placement_label
from normlab.records.pairs import ABSENT, ROW_KEYS
from normlab.reports.arrangement.differing_settings import differing_settings
from normlab.reports.runs import Config
from normlab.reports.setting_names import phrase

PLACEMENT = "placement"
BATCH = {"batch_size", "max_tokens"}


@dataclass(frozen=True)
class RowName:
    """The name of a row: its norms, its placement or task, and its settings in words.

    `keys` are the config keys of the settings. `shown` are names for readers in place of the norms,
    and `chosen` is the user's own name of the row, in place of everything.
    """

    norms: tuple[str, ...]
    where: str = ""
    settings: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    chosen: str = ""

    @classmethod
    def planned(cls, text: str) -> "RowName":
        """Return the name that a study's file gives a row: `bn+ln, padding counted`.

        Its first word is its norms if they are options, and otherwise only words (`pictures`).
        """
        start, *settings = text.split(", ")
        word, space, rest = start.partition(" ")
        norms = word.split("+")
        if {*norms} <= {*option_names("norm")}:
            return cls(tuple(norms), space + rest, tuple(settings))
        return cls((), start, tuple(settings))

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
        shown = self.shown or self.norms
        return ("+" if shown == self.norms else " + ").join(shown) + self.where


class Label(NamedTuple):
    """The norms, the placement, the task with its corpus, and the batch size of an experiment."""

    norms: tuple[str, ...]
    placement: str
    task: str
    batch: str


def label(config: Config) -> Label:
    """Return the labels of an experiment; a placement, task or batch size it lacks is `-`."""
    choices = config.get("choices", {})
    size, tokens = config.get("batch_size"), config.get("max_tokens")
    batch = phrase("batch_size", size) if size is not None else phrase("max_tokens", tokens)
    batch = batch if (size, tokens) != (None, None) else "-"
    task = "/".join(filter(None, (choices.get("task"), corpus_label(config))))
    placement = placement_label(choices, config) or "-"
    return Label(tuple(norms_of(choices)), placement, task or "-", batch)


def names(configs: Sequence[Config], axes: Sequence[str] = ()) -> list[RowName]:
    """Name experiments by their norm and the settings in which they differ, except `axes`.

    If a single setting differs, it is in every name. If several differ, they are only in names that
    would be equal without them, and only as many as needed.
    """
    labels = [label(config) for config in configs]
    shown = [n for n in (1, 2) if len({each[n] for each in labels}) > 1]
    shown = [n for n in shown if not (n == 1 and PLACEMENT in axes)]
    where = ["".join(f" {its[n]}" for n in shown if its[n] != "-") for its in labels]
    shows_batch = not BATCH & {*axes} and len({its.batch for its in labels}) > 1
    words = [[its.batch] if shows_batch else [] for its in labels]
    keys_of: list[list[str]] = [[] for _ in configs]

    def add(
        members: Sequence[int], differing: Mapping[str, Sequence[Any]], keys: Sequence[str]
    ) -> None:
        for place, n in enumerate(members):
            keys_of[n] += keys
            words[n] += phrases({key: values[place] for key, values in differing.items()}, keys)

    differing = differing_settings(configs)
    keys = [key for key in differing if key not in axes and not f"{key}.".startswith(ROW_KEYS)]
    if len(keys) == 1:
        add(range(len(configs)), differing, keys)
    below = tuple(f"{axis}." for axis in axes)
    every = [*zip(labels, where, words, strict=True)]
    for same in grouped(
        ((its.norms, at, *each), n) for n, (its, at, each) in enumerate(every)
    ).values():
        of_group = {
            key: values
            for key, values in differing_settings([configs[n] for n in same]).items()
            if not f"{key}.".startswith(below)
        }
        add(same, of_group, fewest(of_group))
    return [
        RowName(its.norms, at, tuple(each), tuple(keys_of[n]))
        for n, (its, at, each) in enumerate(every)
    ]


def fewest(differing: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a few keys that distinguish experiments as well as all keys do, in the same order."""
    chosen: list[str] = []

    def kinds(keys: Sequence[str]) -> int:
        return len({*map(repr, zip(*(differing[key] for key in keys), strict=True))}) if keys else 1

    while kinds(chosen) < kinds([*differing]):
        chosen.append(max(differing, key=lambda key: kinds([*chosen, key])))
    return [key for key in differing if key in chosen]


def phrases(settings: Mapping[str, Any], shown: Sequence[str]) -> list[str]:
    """Return the `shown` settings in words; for an unset budget limit, the limits that are set.

    Otherwise runs of 12,000 tokens, next to runs of 6 steps, would be called "no steps".
    """
    limits = [key for key, value in settings.items() if _is_limit(key) and value is not None]
    off = any(_is_limit(key) and settings[key] is None for key in shown)
    keys = [*shown, *(key for key in limits if off and key not in shown)]
    return [
        phrase(key, settings[key])
        for key in keys
        if settings[key] != ABSENT and not (off and _is_limit(key) and settings[key] is None)
    ]


def _is_limit(key: str) -> bool:
    return key in ("budget.steps", "budget.tokens", "budget.epochs", "budget.minutes")
