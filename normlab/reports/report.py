"""Writes a report on runs, finished or still training: a page, LaTeX tables and figures."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from normlab.errors import UserError
from normlab.records.files import atomic_write
from normlab.reports.arrangement.arrangement import Arrangement
from normlab.reports.arrangement.unplanned import arrange_by_recipe
from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.line_styles import LIGHT, row_styles
from normlab.reports.figures.paper_figures import figures_of
from normlab.reports.pages.report_page import runs_page
from normlab.reports.pages.sections import TableSection
from normlab.reports.renaming import chosen_names, with_row_names
from normlab.reports.run_paths import none_below
from normlab.reports.runs import Run, read_runs
from normlab.reports.table_formats.latex import Uncertainty, latex_table
from normlab.reports.tables.build_table import build_table
from normlab.reports.translations.side_by_side import SideBySide, side_by_side
from normlab.reports.where import matching_runs, none_matching, unmatched_values
from normlab.terminal import at_work, print_error

_SAMPLES = 5  # sentences


@dataclass
class RunsReport:
    """A report on the runs in some places, written to a folder. Each problem is printed once.

    `conditions` maps keys to the values that runs must have (`--where`). `baseline` is the row to
    compare with, `scores` are the columns, `order` lists the rows that follow the baseline, and
    `names` are the words after `--names`. `data_dir` is the folder of the test text, if it has
    moved.
    """

    places: Sequence[Path]
    folder: Path
    conditions: Mapping[str, str] = field(default_factory=dict[str, str])
    baseline: str | None = None
    scores: Sequence[str] = ()
    order: Sequence[str] = ()
    names: Sequence[str] = ()
    data_dir: Path | None = None
    _printed: set[str] = field(default_factory=set[str])

    @property
    def page(self) -> Path:
        """The path of the page."""
        return self.folder / "report.html"

    def write_page(self, *, reload: int = 0) -> tuple[list[TableSection], bool]:
        """Write the page. Return its sections, and whether all runs could be read.

        The page reloads itself every `reload` seconds, unless `reload` is 0. Raises UserError for
        places without runs, or a baseline or score that no run has.
        """
        with at_work("reading runs"):
            read, problems = read_runs(self.places)
            runs = matching_runs(read, self.conditions)
        self._print_problems(problems, [] if reload else runs)
        if not runs:
            raise UserError(self._none_of(read))
        self._print_problems(unmatched_values(read, self.conditions), [])
        options = {"baseline": self.baseline, "scores": self.scores, "order": self.order}
        arrangements = arrange_by_recipe(runs, **options)
        names = chosen_names(self.names, arrangements)
        with at_work("making the page"):
            with_names = [with_row_names(each, names) for each in arrangements]
            sections = _sections(with_names, names, self.data_dir)
            several = f"{len(runs)} runs"
            heading = ", ".join(map(str, self.places)) if len(self.places) < 3 else several
            about = {"heading": heading, "problems": problems, "reload": reload}
            page = runs_page(sections, self.folder, **about)
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.page) as file:
            file.write(page)
        return sections, not problems

    def _none_of(self, read: Sequence[Run]) -> str:
        """Return the message for places without runs, or without runs that match `conditions`."""
        if read and self.conditions:
            return none_matching(read, self.places, self.conditions)
        return none_below(self.places, " that can be read")

    def _print_problems(self, problems: Sequence[str], runs: Sequence[Run]) -> None:
        """Print each problem, and the state of each unfinished run, unless printed before."""
        without = "its curves are shown, but not its scores"
        unfinished = [f"{run.name}: {run.state}; {without}" for run in runs if run.record is None]
        for line in [*problems, *unfinished]:
            if line not in self._printed:
                print_error(line)
            self._printed.add(line)


def _sections(
    arrangements: Sequence[Arrangement], names: Mapping[str, str], data_dir: Path | None
) -> list[TableSection]:
    """Return a page's sections, one per table. Several sections have names and numbers."""
    sections = [
        TableSection(
            each,
            build_table(each, names),
            number=f"-{n}" if n > 1 else "",
            samples=_samples(each.runs, data_dir),
        )
        for n, each in enumerate(arrangements, 1)
    ]
    if len(sections) == 1:
        return sections
    several = len({section.data_name for section in sections if section.records}) > 1
    named_sections: list[TableSection] = []
    for each in sections:
        recipe = each.source.recipe
        data = each.data_name if several or not recipe else ""
        named_sections.append(replace(each, name=", ".join(filter(None, [data, recipe]))))
    return named_sections


def _samples(runs: Sequence[Run], data_dir: Path | None) -> SideBySide | str | None:
    """Return test sentences with their translations, or the reason why there are none."""
    try:
        return side_by_side(runs, data_dir, count=_SAMPLES)
    except UserError as error:
        return str(error)


def for_paper(section: TableSection) -> TableSection:
    """Return a section with the full names of norms, for LaTeX tables and figures."""
    source = with_row_names(section.source, {}, full=True)
    return replace(section, source=source, table=build_table(source, section.table.names))


def write_latex(sections: Sequence[TableSection], file: Path, uncertainty: Uncertainty) -> Path:
    """Write the tables of a page in LaTeX, and return the file."""
    texts = [
        latex_table(each.table, baseline=each.source.baseline, uncertainty=uncertainty, number=n)
        for n, each in enumerate(sections, 1)
    ]
    with atomic_write(file) as opened:
        opened.write("\n".join(texts))
    return file


class DrawnFigure(NamedTuple):
    """A figure's name, its path, and its texts that have a character without a glyph.

    The path is None if no run has the values that the figure shows.
    """

    name: str
    path: Path | None
    texts_without_glyphs: tuple[str, ...] = ()


def draw_figures(
    sections: Sequence[TableSection], folder: Path, form: str, *, columns_only: bool = False
) -> Iterator[DrawnFigure]:
    """Draw the figures of tables as `svg`, `pdf` or `png`, and yield each of them.

    If there are several tables, the figures of each are in a subfolder. With `columns_only`, only
    the tables' columns are drawn.
    """
    for each in sections:
        of_table = re.sub(r"[^a-z0-9]+", "_", each.name.lower()).strip("_")
        styles = row_styles(each.runs)
        for name, title, panels in figures_of(each.runs, each.table, columns_only=columns_only):
            if not panels:
                yield DrawnFigure(name, None)
                continue
            path = folder / of_table / f"{name}.{form}"
            with at_work(f"drawing {path}"):
                texts = write(draw(panels, styles, LIGHT), path, title=title)
            yield DrawnFigure(name, path, texts)
