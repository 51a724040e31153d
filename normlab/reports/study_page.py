"""The page of a study or of any runs: table, curves, samples, configs, and every run."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from normlab.records.pairs import ABSENT, diff, varying
from normlab.records.record import RunRecord, parts
from normlab.reports.arrange import DRAWN, Arranged
from normlab.reports.charts import by_axis, learning, row_looks, stability, tokens
from normlab.reports.page import duration, page, signed
from normlab.reports.panels import Panel, data
from normlab.reports.runs import NOT_ENDED, NOT_MADE, Run
from normlab.reports.study_table import data_name
from normlab.reports.table import Line, Table, figure, lines
from normlab.reports.translations import TextOf, side_by_side
from normlab.studies import Study

_DASH = "\N{EN DASH}"
_UNLIKE = 1.5  # ratio of the runs' steps from which the page shows tokens across at first
_SHORT = 180.0  # seconds below which a time is not written in hours: "0.0 h" says nothing
_COUNTED = 4  # runs with one value that are named; more are counted


def study_page(
    study: Study,
    scale: str,
    table: Table,
    runs: Sequence[Run],
    *,
    template: str = "study.html",
    text_of: TextOf | None = None,
    **values: Any,
) -> str:
    """Return the page of a study, the same bytes for the same evidence.

    Another `template` extends that of published studies, and uses `values` too. `text_of` gives the
    samples their sources and references, which published studies do not have.
    """
    records = [run.record for run in runs if run.record is not None]
    rows = [name for name in study.rows if any(row.name == name for row in table.rows)]
    looks = row_looks(runs, rows)
    groups = {
        **{f"by {axis}": group for axis, group in by_axis(study, table).items()},
        "learning": learning(study, runs),
        "stability": stability(runs),
    }
    panels: list[Panel] = [panel for group in groups.values() for panel in group.all]
    units = {record.unit for record in records} or {"tokens"}
    unit = units.pop() if len(units) == 1 else "units"
    steps = [record.budget.steps for record in records if record.finished]
    settings = [look.spelled for look in looks.values()]
    return page(
        template,
        charts=data(panels, looks, tokens(runs), unit) if panels else None,
        study=study,
        scale=scale,
        table=table,
        data_name=data_name(study, scale, records),
        lines=[_shown(line) for line in lines(table)],
        directions={column: _direction(table, column) for column in table.columns},
        settings=settings,
        points=list(dict.fromkeys(row.point for row in table.rows)),
        overview=_overview(runs, records),
        groups=groups,
        samples=side_by_side(runs, text_of),
        unit=unit,
        across_tokens=bool(steps) and max(steps) > _UNLIKE * min(steps),
        without=[run.record.run_id for run in runs if run.record is not None and not run.rows],
        diverged=[record for record in records if record.outcome.status == "diverged"],
        configuration=configuration(runs),
        environment=facts(records, "environment"),
        data_facts=facts(records, "data"),
        runs=runs,
        scores={
            record.run_id: [_score(record, column) for column in table.columns]
            for record in records
        },
        **values,
    )


def runs_page(
    arranged: Arranged,
    heading: str,
    *,
    problems: Sequence[str] = (),
    text_of: TextOf | None = None,
    reload: int = 0,
) -> str:
    """Return the page of any runs; `problems` are what could not be read, one line each.

    The page reloads itself every `reload` seconds, unless that is 0.
    """
    runs = [
        replace(run, now={k: _said(k, v) for k, v in run.now.items()}) if run.now else run
        for run in arranged.runs
    ]
    return study_page(
        arranged.study,
        arranged.scale,
        arranged.table,
        runs,
        template="runs.html",
        text_of=text_of,
        heading=heading,
        problems=problems,
        drawn=DRAWN,
        undrawn=arranged.undrawn,
        reload=reload,
    )


def _said(key: str, value: Any) -> str:
    """Write what `progress.json` says under a key, which may be anything."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not -1e15 < value < 1e15:
        return value if isinstance(value, str) else _DASH
    if key == "left":
        return duration(max(0.0, float(value)))
    return figure(float(value), "valid/loss") if key == "loss" else f"{value:,.0f}"


def _shown(line: Line) -> dict[str, Any]:
    """Return a row of the table as its template takes it."""
    figures = [
        {
            "text": _DASH if each.value == "-" else each.value.replace("+-", "\N{PLUS-MINUS SIGN}"),
            "gap": signed(each.difference),
            "document": signed(each.document.removeprefix("document: ")),
            "best": each.best,
        }
        for each in line.scores
    ]
    bad = not line.stability[0].startswith(("finished", NOT_MADE.alone, NOT_ENDED.alone))
    return {**line._asdict(), "at": line.point, "figures": figures, "bad": bad, "said": line.apart}


def _direction(table: Table, column: str) -> str:
    """Say which way a score is better, "" where no row has it."""
    entries = [row.entries[column] for row in table.rows]
    found = {entry.higher_is_better for entry in entries if entry.summary is not None}
    return "".join(f"{'higher' if higher else 'lower'} is better" for higher in sorted(found))


def _score(record: RunRecord, column: str) -> str:
    found = record.figure(column)
    if found is None:
        return ""
    return "not reached" if math.isinf(found.value) else figure(found.value, column)


def _overview(runs: Sequence[Run], records: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Return the facts that a reader asks for first, each with its values."""

    def counted(values: Iterable[object]) -> list[tuple[str, int]]:
        """Return the different values with their counts, the most frequent first."""
        counts = Counter(str(value) for value in values if value is not None)
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))

    def of(part: str, key: str) -> list[str]:
        return [value for value, _ in counted(getattr(r, part).get(key) for r in records)]

    steps = sorted({record.budget.steps for record in records if record.finished})
    updates = f"{steps[0]:,} to {steps[-1]:,}" if len(steps) > 1 else f"{sum(steps):,}"
    seconds = math.fsum(record.budget.wall_seconds for record in records)
    time = f"{seconds / 3600:.1f} h" if seconds >= _SHORT else duration(seconds)
    made = [
        ("runs", [f"{count} {outcome}" for outcome, count in counted(r.outcome for r in runs)]),
        ("seeds", [", ".join(map(str, sorted({run.planned.seed for run in runs})))]),
        ("updates", [updates] if steps else []),
        ("data", of("data", "label") or of("data", "source")),
        ("hardware", of("environment", "device")),
        ("precision", of("environment", "precision")),
        ("training time, all runs", [time] if records else []),
    ]
    return [(name, values) for name, values in made if values]


# Configs, machines and data ----------------------------------------------------------------------


class Configuration(NamedTuple):
    """What all runs share, by dotted key, and the keys that they differ in.

    A difference is a row, its point, and its values of these keys.
    """

    shared: Mapping[str, str]
    keys: tuple[str, ...]
    differences: tuple[tuple[str, str, tuple[str, ...]], ...]


def configuration(runs: Iterable[Run]) -> Configuration:
    """Compare the configs of all settings, each by its first seed: its seeds share theirs.

    What is no part of an experiment (seed, device, folders, probes) is left out, as in its
    fingerprint; the names of chosen options come before the values that they stand for.
    """
    configs: dict[tuple[str, str], Mapping[str, Any]] = {}
    for run in runs:
        place = (run.planned.row, run.planned.point)
        if run.settings and place not in configs:
            choices = run.settings.get("choices", {}).items()
            chosen = {f"option: {k}": v for k, v in choices if v not in (None, "none")}
            configs[place] = {**chosen, **run.settings}
    varied = varying([parts(config) for config in configs.values()])
    rows = [{key: _written(value) for key, value in values.items()} for values in varied]
    first = _leaves(next(iter(configs.values()), {}))
    texts = {key: _written(value) for key, value in first.items()} | next(iter(rows), {})
    shown = (key for key in texts if not key.endswith(".option"))  # "option: norm" says it
    keys = sorted(shown, key=lambda key: (not key.startswith("option"), key))
    # Different values may look the same: no value, and an empty one.
    apart = tuple(key for key in keys if len({row[key] for row in rows if key in row}) > 1)
    return Configuration(
        shared={key: texts[key] for key in keys if key not in apart},
        keys=apart,
        differences=tuple(
            (*place, tuple(row[key] for key in apart))
            for place, row in zip(configs, rows, strict=True)
        ),
    )


def facts(records: Sequence[RunRecord], part: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what records say in `environment` or `data`: each key, and its values.

    A value has the runs that have it, "" for all.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for record in records:
        node = dict(getattr(record, part))
        if part == "environment":
            node |= {"numerics": record.numerics, "own_norms": record.own_norms}
        for key, value in _leaves({part: node}).items():
            name = key.removeprefix(f"{part}.")
            found.setdefault(name, {}).setdefault(_written(value), []).append(record.run_id)

    def of(runs: Sequence[str]) -> str:
        if len(runs) == len(records):
            return ""
        return f"{len(runs)} of {len(records)} runs" if len(runs) > _COUNTED else ", ".join(runs)

    return [
        (key, [(value, of(runs)) for value, runs in values.items()])
        for key, values in sorted(found.items())
    ]


def _leaves(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a nested config by dotted keys."""
    return {key: value for key, (_, value) in diff({}, node).items()}


def _written(value: object) -> str:
    """Write a value as the command line does."""
    if isinstance(value, str):
        return "" if value == ABSENT else value
    return json.dumps(value, sort_keys=True)
