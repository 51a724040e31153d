"""HTML pages, each a self-contained file with inline style and scripts.

A content security policy in the page forbids all requests, so a page needs no other file. All text
is escaped, including control characters.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from normlab.formats import duration, score_text
from normlab.metrics.glossary import has_direction
from normlab.records.grouping import grouped
from normlab.records.labels import one_line
from normlab.records.record import RunRecord, parts
from normlab.records.store import record_file
from normlab.reports.axes import by_axis
from normlab.reports.chart_data import DARK, LIGHT, Panel, Theme, data
from normlab.reports.figures import over_training, row_styles
from normlab.reports.runs import Run
from normlab.reports.table import ScoreTable
from normlab.reports.table_runs import TableRuns
from normlab.templates import environment

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from normlab.reports.translations import SideBySide

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)
_SHORT = 180.0  # shorter times are not shown in hours, because that would read "0.0 h"


def page(template: str, charts: Mapping[str, Any] | None = None, **values: object) -> str:
    """Render a template that extends `page.html`; `charts` is the data for `charts.js`, if any.

    Raises jinja2's UndefinedError if the template uses a name that is not in `values`.
    """
    from markupsafe import Markup

    drawn = [] if charts is None else ["charts.js"]
    loaded = _environment().get_template(template)
    return loaded.render(
        **values,
        colours=Markup(_colours(LIGHT)),
        dark_colours=Markup(_colours(DARK)),
        style=Markup(_text("report.css")),
        script=Markup(_text("tools.js", "tables.js", *drawn, "report.js")),
        data=_printable(charts),
        policy=_POLICY,
    )


def _text(*names: str) -> str:
    folder = files("normlab.reports") / "templates"
    return "".join((folder / name).read_text("utf-8") for name in names)


def _printable(value: Any) -> Any:
    """Return nested chart data with control characters escaped in all strings."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Mapping):
        return {key: _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list | tuple) else value


def _colours(theme: Theme) -> str:
    variables = [f"--{name}: {getattr(theme, name)};" for name in ("paper", "ink", "quiet", "grid")]
    return " ".join([*variables, *(f"--hue-{n}: {hue};" for n, hue in enumerate(theme.hues))])


def _marked(pattern: str, by: str, text: str) -> "Markup":
    from markupsafe import Markup, escape

    return Markup(re.sub(pattern, by, str(escape(one_line(text)))))


def _unbroken(gap: str) -> "Markup":
    """Return a difference that breaks only before its interval and before its p value."""
    return _marked(r" (?!\[|p)", "\N{NO-BREAK SPACE}", gap)


@cache
def _environment() -> "Environment":
    from markupsafe import Markup

    def finalize(value: object) -> object:
        return value if not isinstance(value, str) or isinstance(value, Markup) else one_line(value)

    jinja = environment(
        "normlab.reports", autoescape=True, finalize=finalize, keep_trailing_newline=True
    )
    compact = {"separators": (",", ":"), "allow_nan": False, "sort_keys": True}
    jinja.policies["json.dumps_kwargs"] = compact
    jinja.filters |= {
        "duration": duration,
        "breakable": lambda path: _marked(r"(?<=[/_])(?=\w)", "<wbr>", path),
        "unbroken": _unbroken,
        "coded": lambda text: _marked(r"`([^`]+)`", r"<code>\1</code>", text),
        "link": quote,
    }
    return jinja


@dataclass(frozen=True)
class TableSection:
    """A table on a page, made from the runs of one recipe, with its charts.

    `name` is the name of the recipe, or "" on a page with one table. `number` makes the ids of the
    sections on a page distinct, and is "" for the first section.
    """

    source: TableRuns
    table: ScoreTable
    name: str = ""
    number: str = ""
    samples: "SideBySide | str | None" = None

    @property
    def runs(self) -> Sequence[Run]:
        return self.source.runs

    @property
    def records(self) -> list[RunRecord]:
        return self.source.records

    @property
    def data_name(self) -> str:
        return self.source.data_name

    @property
    def directions(self) -> dict[str, str]:
        """Return whether higher or lower is better, by column."""
        return {column: _direction(self.table, column) for column in self.table.columns}

    @property
    def points(self) -> dict[str, str]:
        """Return the points of the grid, each with its name in words."""
        return {row.point: row.at for row in self.table.rows}

    @property
    def row_names(self) -> list[str]:
        return list(dict.fromkeys(row.name for row in self.table.rows))

    @property
    def unit(self) -> str:
        units = {record.unit for record in self.records}
        return units.pop() if len(units) == 1 else "units"

    @property
    def without_rows(self) -> list[str]:
        """Return the ids of the runs whose logged rows are missing."""
        return [run.record.run_id for run in self.runs if run.record and not run.curve]

    @property
    def diverged(self) -> list[RunRecord]:
        return [record for record in self.records if record.outcome.status == "diverged"]

    @cached_property
    def scores(self) -> dict[str, list[Panel]]:
        """Return the charts of scores, by the name of their axis."""
        charts = by_axis(self.table)
        return {axis.name: [*map(self._numbered, panels)] for axis, panels in charts.items()}

    @cached_property
    def groups(self) -> dict[str, list[Panel]]:
        """Return the charts over training."""
        charts = over_training(self.source.columns, self.runs)
        return {name: [*map(self._numbered, panels)] for name, panels in charts.items()}

    @property
    def has_curves(self) -> bool:
        return any(self.groups.values())

    @property
    def first(self) -> list[Panel]:
        """Return the main chart: the first score over the first axis, if there is one."""
        return next(iter(self.scores.values()), [])[:1]

    @property
    def more_scores(self) -> dict[str, list[Panel]]:
        """Return the charts of scores except the first."""
        return {
            name: [panel for panel in panels if panel not in self.first]
            for name, panels in self.scores.items()
        }

    @property
    def panels(self) -> list[Panel]:
        return [p for group in (*self.scores.values(), *self.groups.values()) for p in group]

    def _numbered(self, panel: Panel) -> Panel:
        return replace(panel, number=self.number)


def study_page(source: TableRuns, table: ScoreTable, home: Path) -> str:
    """Return the page of a study, made only from its evidence; `home` is the study's folder."""
    values = {"study": source.study, "scale": source.scale}
    return _page_of_runs("study.html", [TableSection(source, table)], home, **values)


def runs_page(
    sections: Sequence[TableSection],
    home: Path,
    *,
    heading: str,
    problems: Sequence[str] = (),
    reload: int = 0,
) -> str:
    """Return the page of any runs, a section for each table; `home` is the page's folder.

    `problems` are messages about unreadable files; the page reloads itself every `reload` seconds,
    unless `reload` is 0.
    """
    scale = ", ".join(
        dict.fromkeys(section.source.scale for section in sections if section.source.scale)
    )
    values = {"scale": scale, "heading": heading, "problems": problems, "reload": reload}
    return _page_of_runs("runs.html", sections, home, **values)


def _page_of_runs(
    template: str, sections: Sequence[TableSection], home: Path, **values: object
) -> str:
    """Render a page of sections; rows and points with the same name are filtered together."""
    runs = [run for section in sections for run in section.runs]
    records = [record for section in sections for record in section.records]
    rows = dict.fromkeys(name for section in sections for name in section.row_names)
    points = {at: name for section in sections for at, name in section.points.items()}
    styles = row_styles(runs, rows)
    return page(
        template,
        data([panel for section in sections for panel in section.panels], styles, points),
        sections=sections,
        settings=[asdict(style) for style in styles.values()],
        points=points,
        overview=_overview(runs, records),
        recorded={
            "configuration": facts(run.settings for run in runs),
            "environment": facts({"": r.environment} for r in records),
            "code": facts({"": {"numerics": r.numerics, **r.own_norms}} for r in records),
            "data": facts({"": record.data} for record in records),
        },
        link_of=lambda run: Path(os.path.relpath(record_file(run.folder), home)).as_posix(),
        score_of=_score,
        **values,
    )


def _direction(table: ScoreTable, column: str) -> str:
    """Return "higher is better" or "lower is better"; "" if neither is, or if no row has it."""
    if not has_direction(column):
        return ""
    scores = [score for row in table.rows for score in row.entries[column].scores.values()]
    directions = {score.higher_is_better for score in scores}
    return "".join(f"{'higher' if higher else 'lower'} is better" for higher in sorted(directions))


def _score(record: RunRecord, column: str) -> str:
    if (score := record.metric(column)) is None:
        return "\N{EN DASH}"
    return "not reached" if math.isinf(score.value) else score_text(score.value, column)


def _overview(runs: Sequence[Run], records: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Return the number of runs by outcome, their seeds and their training time."""
    outcomes = [run.outcome for run in runs]
    seconds = math.fsum(record.budget.wall_seconds for record in records)
    time = f"{seconds / 3600:.1f} h" if seconds >= _SHORT else duration(seconds)
    return [
        ("runs", [f"{outcomes.count(each)} {each}" for each in _counted(outcomes)]),
        ("seeds", [*map(str, sorted({run.key.seed for run in runs}))]),
        *([("training time, all runs", [time])] if records else []),
    ]


def facts(nodes: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the dotted keys of nested mappings, each with its distinct values as text."""
    pairs = (pair for node in nodes for pair in parts(node).items())
    texts = ((key, json.loads(text) if text[0] == '"' else text) for key, text in pairs)
    return [(key, _counted(values)) for key, values in sorted(grouped(texts).items())]


def _counted(values: Iterable[object]) -> list[str]:
    """Return the distinct values as text, most frequent first."""
    counts = Counter(str(value) for value in values if value is not None)
    return sorted(counts, key=lambda value: (-counts[value], value))
