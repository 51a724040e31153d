"""Records for notebooks: tables, curves over training, and figures.

`normlab.load_records()` returns the records. Tables are pandas data frames; pandas is imported on
first use.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from normlab.errors import UserError
from normlab.metrics.score_text import score_text
from normlab.records.labels import one_line
from normlab.records.record import RunRecord
from normlab.records.store import RunStore, lookup, select, series
from normlab.reports.arrangement.unplanned import arrange, main_tests
from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.fonts import lack_of_glyphs
from normlab.reports.figures.line_styles import LIGHT, row_styles
from normlab.reports.figures.paper_figures import KINDS, LACK
from normlab.reports.runs import rows_of_run, unplaced_run
from normlab.reports.table_formats.markdown import markdown_table
from normlab.reports.tables.build_table import build_table

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

_SHOWN = 10  # number of rows when records are printed as a table


@dataclass(frozen=True)
class Picture:
    """A figure that a notebook shows as SVG. `figure` is the matplotlib figure."""

    figure: "matplotlib.figure.Figure"
    title: str

    def _repr_svg_(self) -> str:
        with TemporaryDirectory() as folder:
            return self.save(Path(folder) / "figure.svg").read_text("utf-8")

    def save(self, path: Path | str) -> Path:
        """Write the figure as `.svg`, `.pdf` or `.png`, by the path's suffix. Return the path."""
        if texts := write(self.figure, Path(path), title=self.title):
            warnings.warn(lack_of_glyphs(texts), stacklevel=2)
        return Path(path)


class Records(list[RunRecord]):
    """A list of run records, printed as a table of the first ten. `folders` has their folders."""

    def __init__(self, runs: Sequence[tuple[Path, RunRecord]]) -> None:
        super().__init__(record for _, record in runs)
        self.folders = [folder for folder, _ in runs]

    def __repr__(self) -> str:
        shown = self[:_SHOWN]
        tests = main_tests(dict.fromkeys(name for record in shown for name in record.scores))
        rows = [[*_identity(shown[0]), "status", *tests]] if shown else []
        for record in shown:
            scores = record.scores
            values = [score_text(scores[n].value, n) if n in scores else "-" for n in tests]
            rows.append([*_identity(record).values(), record.outcome.status, *values])
        columns = [[one_line(str(cell)) for cell in column] for column in zip(*rows, strict=True)]
        padded = [[cell.ljust(max(map(len, cells))) for cell in cells] for cells in columns]
        lines = ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
        return "\n".join([*lines, f"{len(shown)} of {len(self)} runs"])

    def to_frame(self, *keys: str) -> "pandas.DataFrame":
        """Return a data frame with one row per run.

        Its columns are task, norm, placement, seed, status, step, the `keys`, which are dotted
        config keys such as `optim.lr`, and the scores.
        """
        import pandas

        return pandas.DataFrame(
            {
                **_identity(record),
                "status": record.outcome.status,
                "step": record.outcome.step,
                **{key: lookup(record, key) for key in keys},
                **{name: score.value for name, score in record.scores.items()},
            }
            for record in self
        )

    def curves(self, *names: str) -> "pandas.DataFrame":
        """Return a data frame of metrics over training, with one row per run and logged step.

        `names` are metrics, by default `train/loss` and `valid/loss`. A metric that was not logged
        at a step is NaN there. A published run has only the steps that were published.
        """
        import pandas

        rows: list[dict[str, Any]] = []
        for folder, record in zip(self.folders, self, strict=True):
            steps: dict[int, dict[str, float]] = {}
            for name in names or ("train/loss", "valid/loss"):
                for step, value in series(rows_of_run(folder), name):
                    steps.setdefault(step, {})[name] = value
            rows += [{**_identity(record), "step": step, **steps[step]} for step in sorted(steps)]
        return pandas.DataFrame(rows)

    def plot(self, kind: str = "loss") -> Picture:
        """Plot the runs, with one line per experiment and a band over its seeds.

        `kind` is one of the figures that `normlab report --figures` draws. Raises UserError if the
        kind is unknown, or if no run has the metrics that it needs.
        """
        if kind not in KINDS:
            raise UserError(f"{kind!r} is not a figure; choose from {', '.join(KINDS)}")
        pairs = zip(self.folders, self, strict=True)
        runs = arrange([unplaced_run(place, run, rows_of_run(place)) for place, run in pairs]).runs
        panels = KINDS[kind].panels(runs)
        if not panels:
            raise UserError(f"kind {kind!r}: {LACK}")
        return Picture(draw(panels, row_styles(runs), LIGHT), KINDS[kind].title)

    def _repr_markdown_(self) -> str:
        """Return the table of `normlab compare` in Markdown."""
        return markdown_table(build_table(arrange([unplaced_run(None, run) for run in self])))


def load_records(runs_dir: Path | str = "runs", **where: object) -> Records:
    """Return the records in `runs_dir` whose config options, keys, seed or status match `where`.

    Examples are `norm="bn"`, `status="finished"` and `**{"optim.lr": 0.002}`. Raises UserError for
    a key that no record has.
    """
    return Records(select(RunStore(runs_dir).entries(), where, lambda entry: entry[1]))


def _identity(record: RunRecord) -> dict[str, Any]:
    return {key: lookup(record, key) for key in ("task", "norm", "placement", "seed")}
