"""The page of a study or of any runs: table, curves, samples, configs, and every run."""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from normlab.records.pairs import ABSENT, varying
from normlab.records.record import RunRecord, parts
from normlab.records.store import record_file
from normlab.reports.charts import by_axis, over_training, row_looks
from normlab.reports.comparison import told_apart
from normlab.reports.page import duration, page
from normlab.reports.panels import data
from normlab.reports.runs import Run, by_setting
from normlab.reports.study_table import data_name
from normlab.reports.table import Table, figure
from normlab.reports.translations import TextOf, side_by_side
from normlab.studies import Study

_SHORT = 180.0  # shorter times are not in hours: "0.0 h" says nothing


def study_page(
    study: Study,
    scale: str,
    table: Table,
    runs: Sequence[Run],
    home: Path,
    *,
    template: str = "study.html",
    text_of: TextOf | None = None,
    **values: Any,
) -> str:
    """Return the page of a study, reproducible from its evidence; `home` is the study's folder.

    The template for arbitrary runs, `runs.html`, also takes `heading`, `problems` (what could not
    be read) and `reload` (seconds, or 0). `text_of` gives the samples their sources and references,
    which published studies do not have.
    """
    records = [run.record for run in runs if run.record is not None]
    looks = row_looks(runs, dict.fromkeys(row.name for row in table.rows))
    groups = {**by_axis(study, table), **over_training(study, runs)}
    units = {record.unit for record in records}
    return page(
        template,
        data([panel for group in groups.values() for panel in (*group.shown, *group.more)], looks),
        published=text_of is None,
        study=study,
        scale=scale,
        table=table,
        data_name=data_name(study, scale, records),
        directions={column: _direction(table, column) for column in table.columns},
        settings=[asdict(look) for look in looks.values()],
        points=list(dict.fromkeys(row.point for row in table.rows)),
        overview=[(name, own) for name, own in _overview(runs, records).items() if own],
        groups=groups,
        samples=side_by_side(runs, text_of),
        unit=units.pop() if len(units) == 1 else "units",
        without=[run.record.run_id for run in runs if run.record is not None and not run.rows],
        diverged=[record for record in records if record.outcome.status == "diverged"],
        configuration=configuration(runs),
        environment=facts(records, "environment"),
        data_facts=facts(records, "data"),
        runs=runs,
        link_of=lambda run: Path(os.path.relpath(record_file(run.folder), home)).as_posix(),
        score_of=_score,
        said=_said,
        **values,
    )


def _said(now: Mapping[str, Any], key: str) -> str:
    """Format a value of `progress.json`, which may be of any type."""
    value = now[key]
    if not isinstance(value, int | float) or not math.isfinite(value):
        return str(value)
    if key == "left":
        return duration(max(0.0, float(value)))
    return figure(float(value), "valid/loss") if key == "loss" else f"{value:,.0f}"


def _direction(table: Table, column: str) -> str:
    """Return which direction of a score is better, "" if no row has the score."""
    entries = [row.entries[column] for row in table.rows]
    found = {entry.higher_is_better for entry in entries if entry.summary is not None}
    return "".join(f"{'higher' if higher else 'lower'} is better" for higher in sorted(found))


def _score(record: RunRecord, column: str) -> str:
    if (found := record.figure(column)) is None:
        return "\N{EN DASH}"
    return "not reached" if math.isinf(found.value) else figure(found.value, column)


def _overview(runs: Sequence[Run], records: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Return the main facts about the runs, each with its values."""
    outcomes = [run.outcome for run in runs]
    seeds = sorted({run.planned.seed for run in runs})
    steps = [record.budget.steps for record in records if record.finished]
    bounds = dict.fromkeys(f"{n:,}" for n in (min(steps), max(steps))) if steps else {}
    sources, machines = [r.data for r in records], [r.environment for r in records]
    seconds = math.fsum(record.budget.wall_seconds for record in records)
    time = f"{seconds / 3600:.1f} h" if seconds >= _SHORT else duration(seconds)

    def of(nodes: Iterable[Mapping[str, Any]], key: str) -> list[str]:
        return _counted(node.get(key) for node in nodes)

    return {
        "runs": [f"{outcomes.count(each)} {each}" for each in _counted(outcomes)],
        "seeds": [", ".join(map(str, seeds))],
        "updates": [" to ".join(bounds)] if steps else [],
        "data": of(sources, "label") or of(sources, "source"),
        "hardware": of(machines, "device"),
        "precision": of(machines, "precision"),
        "training time, all runs": [time] if records else [],
    }


class Configuration(NamedTuple):
    """The config keys shared by all settings, the keys that differ, and each setting's values."""

    shared: dict[str, str]
    columns: list[str]
    rows: list[tuple[str, str, list[str]]]


def configuration(runs: Iterable[Run]) -> Configuration:
    """Compare the configs of all settings; the first seed stands for all seeds of a setting.

    What does not identify an experiment (seed, device, folders, probes) is left out.
    """
    groups = by_setting(run for run in runs if run.settings)
    configs = {place: own[0].settings for place, own in groups.items()}
    apart = told_apart([*configs.values()])
    vary = {key for each in varying([*map(parts, configs.values())]) for key in each}
    first = _leaves(next(iter(configs.values()), {}))
    return Configuration(
        {key: _written(value) for key, value in first.items() if key not in vary},
        [key for own in apart[:1] for key in own],
        [
            (*place, [_written(value) for value in own.values()])
            for place, own in zip(configs, apart, strict=True)
        ],
    )


def facts(records: Sequence[RunRecord], part: str) -> list[tuple[str, list[str]]]:
    """Return the keys in a part of the records with their values, the most frequent first."""
    found: dict[str, list[str]] = {}
    for record in records:
        node = dict(getattr(record, part))
        if part == "environment":
            node |= {"numerics": record.numerics, "own_norms": record.own_norms}
        for key, value in _leaves({part: node}).items():
            found.setdefault(key.removeprefix(f"{part}."), []).append(_written(value))
    return [(key, _counted(values)) for key, values in sorted(found.items())]


def _counted(values: Iterable[object]) -> list[str]:
    """Return the distinct values as text, the most frequent first."""
    counts = Counter(str(value) for value in values if value is not None)
    return sorted(counts, key=lambda value: (-counts[value], value))


def _leaves(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a nested config by dotted keys."""
    return {key: json.loads(value) for key, value in parts(node).items()}


def _written(value: object) -> str:
    """Format a value as on the command line."""
    if isinstance(value, str):
        return "" if value == ABSENT else value
    return json.dumps(value, sort_keys=True)
