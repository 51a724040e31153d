"""The settings of experiments: their labels, and the settings in which they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from normlab.config.schema import REPEATS
from normlab.records.labels import corpus_label, norms_of, placement_label
from normlab.records.pairs import varying
from normlab.records.record import Parts, RunRecord
from normlab.reports.runs import Config, Run
from normlab.reports.setting_names import phrase

_IN_NAMES = ("norm", "placement", "task", "task/corpus")
"""The config groups whose options are part of a row's name."""


class Label(NamedTuple):
    """The norms, the placement, the task with its corpus, and the batch size of an experiment."""

    norms: tuple[str, ...]
    placement: str
    task: str
    batch: str


@dataclass(frozen=True)
class Settings:
    """The settings of an experiment: its config, and the config's hashed part by dotted key."""

    config: Config
    parts: Parts

    @classmethod
    def of(cls, run: Run) -> "Settings":
        return cls(run.settings, run.parts)

    @classmethod
    def of_record(cls, record: RunRecord) -> "Settings":
        return cls(record.config, record.parts)

    @property
    def choices(self) -> Mapping[str, Any]:
        """The option of each config group."""
        return self.config.get("choices", {})

    @cached_property
    def label(self) -> Label:
        """The experiment's label, with `-` for a placement, task or batch size that it lacks."""
        config, choices = self.config, self.choices
        size, tokens = config.get("batch_size"), config.get("max_tokens")
        batch = phrase("batch_size", size) if size is not None else phrase("max_tokens", tokens)
        batch = batch if (size, tokens) != (None, None) else "-"
        task = "/".join(filter(None, (choices.get("task"), corpus_label(config))))
        placement = placement_label(choices, config) or "-"
        return Label(tuple(norms_of(choices)), placement, task or "-", batch)


def differing_settings(experiments: Sequence[Settings]) -> dict[str, list[Any]]:
    """Return the settings in which experiments differ, each with its value in every experiment.

    Options of config groups come first, then dotted keys. An option covers all keys below it. A key
    is left out if an earlier key with the same last part has the same values, or if it only repeats
    another key (`REPEATS`), as `model.encoder_layers` repeats `model.depth`.
    """
    chosen = [each.choices for each in experiments]
    groups = sorted({key for each in chosen for key in each} - {*_IN_NAMES})
    every = {key: [each.get(key) for each in chosen] for key in groups}
    options = {key: values for key, values in every.items() if len({*values}) > 1}
    differing = varying([each.parts for each in experiments])
    differing = {
        k: v for k, v in differing.items() if k not in REPEATS or differing.get(REPEATS[k]) != v
    }
    first: dict[tuple[str, str], str] = {}
    for key, values in differing.items():
        first.setdefault((key.rpartition(".")[2], repr(values)), key)
    keys = [key for key in first.values() if key.split(".")[0] not in options]
    return options | {key: differing[key] for key in keys}
