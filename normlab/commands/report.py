"""`normlab report`: the page and figures of runs, finished or in training."""

import re
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._arguments import (
    Parser,
    add_compared,
    as_path,
    check_compared,
    command_parser,
    matching_runs,
    none_below,
)
from normlab.errors import UserError
from normlab.terminal import at_work, print_error

if TYPE_CHECKING:
    from normlab.reports.latex import Uncertainty
    from normlab.reports.page import TableSection
    from normlab.reports.runs import Run
    from normlab.reports.table_runs import TableRuns
    from normlab.reports.translations import SideBySide

_EXAMPLES = """examples:
  normlab report                    a page of all runs: report/report.html
  normlab report runs/toy-ln-* runs/toy-bn-* --baseline ln --out paper
  normlab report --watch            rewrite it while runs train
  normlab report --figures pdf      figures, too: report/bleu_by_norm.pdf, ...
  normlab report results/batch_size/small --where norm=ln,bn     published runs

RUN is a run folder, a folder of runs (such as that of a sweep) or a
record.json. The page is one file that opens offline: the answer in a sentence,
scores by what a sweep varies, one row per experiment, differences from the
baseline paired by seed, curves, training statistics, test sentences with their
translations, and config differences. Runs whose scores cannot be compared
(other task, model or budget) form separate tables, each with its charts.
Tables and charts can be saved as SVG and CSV. Figures by layer and over
training need the probes of a run: train with probe=full.
"""
_SAMPLES = 5  # sentences
_EVERY = 5  # minimum seconds between two versions of the page


def main(argv: list[str]) -> int:
    """Write the page of runs, with `--watch` until Ctrl-C; return 1 if a run cannot be read.

    Raises UserError for places without runs, or a baseline or score that no run has.
    """
    arguments = _parser().parse_args(argv)
    check_compared(arguments)
    page = _Page(arguments)
    try:
        while arguments.watch:
            begun = time.monotonic()
            try:
                page.write(reload=_EVERY)
            except UserError as error:  # no run has the requested row or score yet
                print_error(str(error))
            time.sleep(max(_EVERY, 5 * (time.monotonic() - begun)))
    except KeyboardInterrupt:
        print(f"\n{page.file} is no longer updated")
    sections, whole = page.write()  # the last page does not reload
    print(page.file, flush=True)
    if arguments.latex or arguments.figures is not None:
        sections = [_for_paper(section) for section in sections]
    if arguments.latex:
        print(
            _write_latex(sections, arguments.out / "table.tex", arguments.uncertainty), flush=True
        )
    if arguments.figures is not None:
        _draw(sections, arguments.out, arguments.figures)
    return 0 if whole else 1


def _parser() -> Parser:
    parser = command_parser("report", _EXAMPLES)
    add_compared(parser)
    add = parser.add_argument
    add(
        "--out",
        type=as_path,
        default=Path("report"),
        metavar="FOLDER",
        help="output folder; default: report",
    )
    add("--watch", action="store_true", help="rewrite the page until Ctrl-C")
    add("--figures", choices=("svg", "pdf", "png"), help="also draw figures, next to the page")
    return parser


class _Page:
    """The page of the runs in the arguments; a problem of a run is printed once."""

    def __init__(self, arguments: Namespace) -> None:
        self.arguments = arguments
        self.names: dict[str, str] = {}
        self.file: Path = arguments.out / "report.html"
        self._reported = set[str]()

    def write(self, *, reload: int = 0) -> "tuple[list[TableSection], bool]":
        """Write the page; return its tables, and whether all runs could be read.

        In a browser the page reloads every `reload` seconds; 0: never.
        """
        from normlab.records.files import atomic_write
        from normlab.reports.arrangement import by_recipe
        from normlab.reports.names import chosen_names, renamed
        from normlab.reports.page import runs_page
        from normlab.reports.runs import read_runs

        places, baseline = self.arguments.runs, self.arguments.baseline
        with at_work("reading runs"):
            runs, problems = read_runs(places)
            runs = matching_runs(runs, self.arguments.where)
        self._report(problems, [] if reload else runs)
        if not runs:
            which = f" that matches --where {' --where '.join(self.arguments.where)}"
            which = which if self.arguments.where else " that can be read"
            raise UserError(none_below(places, which))
        columns, order = self.arguments.columns, self.arguments.order
        tables = by_recipe(runs, baseline=baseline, scores=columns, order=order)
        self.names = chosen_names(self.arguments.names, tables)
        tables = [renamed(table, self.names) for table in tables]
        with at_work("making the page"):
            sections = _sections(tables, self.names, self.arguments.data_dir)
            title = ", ".join(map(str, places)) if len(places) < 3 else f"{len(runs)} runs"
            about = {"heading": title, "problems": problems, "reload": reload}
            page = runs_page(sections, self.file.parent, **about)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.file) as file:
            file.write(page)
        return sections, not problems

    def _report(self, problems: Sequence[str], runs: "Sequence[Run]") -> None:
        """Print problems, and the state of unfinished runs."""
        without = "its curves are shown, but not its scores"
        unfinished = [f"{run.name}: {run.state}; {without}" for run in runs if run.record is None]
        for line in [*problems, *unfinished]:
            if line not in self._reported:
                print_error(line)
            self._reported.add(line)


def _for_paper(section: "TableSection") -> "TableSection":
    """Return a table and its runs with full names of norms."""
    from normlab.reports.names import renamed
    from normlab.reports.score_table import score_table

    source = renamed(section.source, {}, full=True)
    return replace(section, source=source, table=score_table(source, section.table.names))


def _write_latex(
    sections: "Sequence[TableSection]", file: Path, uncertainty: "Uncertainty"
) -> Path:
    """Write the tables of a page in LaTeX; return the file."""
    from normlab.records.files import atomic_write
    from normlab.reports.latex import latex

    texts = [
        latex(each.table, baseline=each.source.baseline, uncertainty=uncertainty, number=n)
        for n, each in enumerate(sections, 1)
    ]
    with atomic_write(file) as opened:
        opened.write("\n".join(texts))
    return file


def _sections(
    tables: "Sequence[TableRuns]", names: Mapping[str, str], data_dir: Path | None
) -> "list[TableSection]":
    """Return a page's sections, one per table; if several, each gets a name and a number."""
    from normlab.reports.page import TableSection
    from normlab.reports.score_table import score_table

    sections = [
        TableSection(
            each,
            score_table(each, names),
            number=f"-{n}" if n > 1 else "",
            samples=_samples(each.runs, data_dir),
        )
        for n, each in enumerate(tables, 1)
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


def _samples(runs: "Sequence[Run]", data_dir: Path | None) -> "SideBySide | str | None":
    """Return test sentences with their translations, or the reason why there are none."""
    from normlab.reports.translations import side_by_side

    try:
        return side_by_side(runs, data_dir, count=_SAMPLES)
    except UserError as error:
        return str(error)


def _draw(sections: "Sequence[TableSection]", out: Path, form: str) -> None:
    """Draw figures and print the path of each; with several tables, each has a folder of figures.

    A path is printed as soon as its figure is drawn, because a dozen may take a minute.
    """
    from normlab.reports.chart_data import LIGHT
    from normlab.reports.figures import LACK, draw, figures_of, row_styles, write

    lacking: dict[str, None] = {}
    for each in sections:
        folder = re.sub(r"[^a-z0-9]+", "_", each.name.lower()).strip("_")
        styles = row_styles(each.runs)
        for name, title, panels in figures_of(each.runs, each.table):
            if not panels:
                lacking[name] = None
                continue
            path = out / folder / f"{name}.{form}"
            with at_work(f"drawing {path}"):
                write(draw(panels, styles, LIGHT), path, title=title)
            print(path, flush=True)
    if lacking:
        names = f"figure{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}"
        print_error(f"{names} skipped: {LACK}")
