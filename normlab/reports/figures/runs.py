"""Decides what figures are drawn from: runs read from disk, and which of them are one line.

The seeds of an experiment are one line. Its name is its norm, and whatever else sets it apart from
the other experiments of the figure.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.records.aggregate import Cell
from normlab.records.files import read_file
from normlab.records.fingerprint import fingerprint, parts, varying
from normlab.records.record import RunRecord
from normlab.records.rows import METRICS_FILE
from normlab.records.store import CONFIG_FILE, RECORD_FILE, norm_label, read_record
from normlab.reports.curves import rows_of_run

_OPTIONS = ("placement", "model", "scale", "optim", "schedule")


@dataclass(frozen=True)
class Run:
    """One run: its config, its rows, which may be none, and its record, None before its end."""

    config: dict[str, Any]
    rows: Sequence[dict[str, Any]]
    record: RunRecord | None

    @classmethod
    def of(cls, record: RunRecord, rows: Sequence[dict[str, Any]] = ()) -> "Run":
        """Join a record with the rows of its run."""
        return cls(record.config, rows, record)

    @property
    def experiment(self) -> str:
        """Return the fingerprint of the config, the same for all seeds."""
        return fingerprint(self.config)

    @property
    def task(self) -> str:
        """Return the option of the task."""
        return self.choice("task")

    @property
    def norm(self) -> str:
        """Return the label of the norms."""
        return norm_label(self.config.get("choices", {}))

    @property
    def seed(self) -> int:
        """Return the seed."""
        return int(self.config["seed"])

    def choice(self, group: str) -> str:
        """Return the option of a config group, `none` where there is none."""
        return str(self.config.get("choices", {}).get(group) or "none")

    def has_probe(self, name: str) -> bool:
        """Tell whether the run was observed by a probe."""
        return name in self.config.get("observe", {}).get("probe", {})


@dataclass(frozen=True)
class Experiment:
    """The seeds of one experiment, in the order of their seeds, and their name in a figure.

    `number` counts the experiments drawn together; it decides the look of their lines, so that an
    experiment looks the same in all figures, also in those that others are missing from.
    """

    number: int
    name: str
    runs: tuple[Run, ...]

    @property
    def records(self) -> list[RunRecord]:
        """Return the records of the runs that have ended."""
        return [run.record for run in self.runs if run.record is not None]


def last_step(experiments: Iterable[Experiment]) -> int:
    """Return the last step that any run has come to, 0 without rows."""
    runs = [run for experiment in experiments for run in experiment.runs]
    rows = [row["step"] for run in runs for row in run.rows[-1:]]
    return max([0, *rows, *(run.record.outcome.step for run in runs if run.record)])


def find_runs(place: Path) -> list[Path]:
    """Return the run folders at or below a folder, in the order of their paths.

    Raises `ValueError` where there is none.
    """
    if not place.is_dir():
        raise ValueError(f"{place}: no such run; `normlab list runs` lists the runs")
    files = itertools.chain(place.rglob(RECORD_FILE), place.rglob(METRICS_FILE))
    found = sorted({path.parent for path in files})
    if not found:
        raise ValueError(f"{place}: no run here, neither a {RECORD_FILE} nor a {METRICS_FILE}")
    return found


def read_run(folder: Path) -> Run:
    """Read a run; raises `ValueError` naming the file that is damaged, and where."""
    rows = rows_of_run(folder)
    if (folder / RECORD_FILE).is_file():
        return Run.of(read_record(folder / RECORD_FILE), rows)
    return Run(read_config(folder / CONFIG_FILE), rows, record=None)


def read_config(path: Path) -> dict[str, Any]:
    """Read the config of a run that has no record; ValueError naming the file and what to do."""
    import yaml  # only a run without a record needs it

    try:
        config = _loaded(read_file(path).decode())
        _ = fingerprint(config), int(config["seed"])
    except (
        OSError,
        yaml.YAMLError,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        RecursionError,
    ) as error:
        raise ValueError(
            f"{path}: no config of a run ({type(error).__name__}: {error}); start the run again, "
            "or leave its folder out"
        ) from None
    return config


def _loaded(text: str) -> Any:
    import yaml  # only a run without a record needs it

    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("nests without end") from None


def experiments(runs: Iterable[Run]) -> list[Experiment]:
    """Join seeds and name the experiments, in the order in which each first appears.

    Raises `ValueError` for seeds that are not comparable, as `Cell.of` says.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.experiment, []).append(run)
    found = names(list(groups.values()))
    joined = [
        Experiment(number, name, tuple(sorted(members, key=lambda run: run.seed)))
        for number, (name, members) in enumerate(zip(found, groups.values(), strict=True))
    ]
    for experiment in joined:
        if experiment.records:
            Cell.of(experiment.records)
    return joined


def names(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Name each group by its norm, with the options and values that tell those alike apart."""
    firsts = [group[0] for group in groups]
    found = [run.norm for run in firsts]
    for tell in (_by_options, _by_values):
        alike: dict[str, list[int]] = {}
        for index, name in enumerate(found):
            alike.setdefault(name, []).append(index)
        for name, indices in alike.items():
            if len(indices) > 1:
                told = tell([firsts[index] for index in indices])
                for index, text in zip(indices, told, strict=True):
                    found[index] = f"{name} {text}".rstrip()
    counts = Counter(found)
    return [
        name if counts[name] == 1 else f"{name} {run.experiment}"
        for name, run in zip(found, firsts, strict=True)
    ]


def _by_options(runs: Sequence[Run]) -> list[str]:
    groups = [key for key in _OPTIONS if len({run.choice(key) for run in runs}) > 1]
    return [" ".join(run.choice(key) for key in groups) for run in runs]


def _by_values(runs: Sequence[Run]) -> list[str]:
    values = varying([parts(run.config) for run in runs])
    keys = [of[0] for of in together(values)]
    return [" ".join(f"{key}={each[key]}" for key in keys) for each in values]


def together(values: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the keys of some configs, those that are equal in each of them as one, short first."""
    columns: dict[str, list[str]] = {}
    for key in sorted(values[0], key=lambda key: (len(key), key)):
        columns.setdefault(repr([each[key] for each in values]), []).append(key)
    return [tuple(keys) for keys in columns.values()]
