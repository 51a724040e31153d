"""`normlab report`: the page and figures of runs, finished or in training."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._arguments import (
    add_compared,
    as_path,
    command_parser,
    named_columns,
    none_below,
)
from normlab.commands._terminal import at_work, complain
from normlab.errors import UserError

if TYPE_CHECKING:
    from normlab.reports.gather import Arranged, Run
    from normlab.reports.table import Table
    from normlab.reports.translations import SideBySide

_EXAMPLES = """examples:
  normlab report                    a page of all runs: report/report.html
  normlab report runs/toy-ln-* runs/toy-bn-* --baseline ln --out paper
  normlab report --watch            rewrite it while runs train
  normlab report --figures pdf      figures, too: report/bleu_by_norm.pdf, ...

RUN is a run folder, a folder of runs (such as that of a sweep) or a
record.json. The page is one file that opens offline: the answer in a sentence,
scores by what a sweep varies, one row per experiment, differences from the
baseline paired by seed, curves, training statistics, test sentences with their
translations, and config differences. Tables and charts can be saved as SVG and
CSV. Figures by layer and over training need the probes of a
run: train with probe=full.
"""
_SAMPLES = 5  # sentences
_EVERY = 5  # seconds between two pages, at least


def main(argv: list[str]) -> int:
    """Write the page of runs, with `--watch` until Ctrl-C; return 1 if a run cannot be read.

    Raises UserError for places without runs, or a baseline or score that no run has.
    """
    from normlab.records.files import atomic_write
    from normlab.reports.gather import arranged, read_runs
    from normlab.reports.page import study_page
    from normlab.reports.study_table import build
    from normlab.reports.translations import side_by_side

    parser = command_parser("report", _EXAMPLES)
    add_compared(parser)
    add = parser.add_argument
    add("--out", type=as_path, default=Path("report"), metavar="FOLDER", help="default: report")
    add("--watch", action="store_true", help="rewrite the page until Ctrl-C")
    add("--figures", choices=("svg", "pdf", "png"), help="also draw figures, next to the page")
    arguments = parser.parse_args(argv)
    columns = named_columns(arguments)
    places, out, told = arguments.runs, arguments.out, set[str]()

    def samples(runs: "list[Run]") -> "SideBySide | str | None":
        """Return test sentences with their translations, or the reason why there are none."""
        try:
            return side_by_side(runs, arguments.data_dir, count=_SAMPLES)
        except UserError as error:
            return str(error)

    def write(*, reload: int = 0) -> "tuple[Arranged, Table, bool]":
        """Write the page; return the runs, their table, and whether all runs could be read."""
        with at_work("reading runs"):
            found, problems = read_runs(places)
        unfinished = [run for run in found if run.record is None and not reload]
        without = "its curves are shown, but not its scores"
        for line in [*problems, *(f"{run.name}: {run.state}; {without}" for run in unfinished)]:
            if line not in told:
                complain(line)
            told.add(line)
        if not found:
            raise UserError(none_below(places, " that can be read"))
        runs = arranged(found, baseline=arguments.baseline, scores=[*columns])
        with at_work("making the page"):
            table = replace(build(*runs, found=True), names=columns)
            page = study_page(
                *(runs.study, runs.scale, table, runs.runs, out),
                template="runs.html",
                heading=", ".join(map(str, places)) if len(places) < 3 else f"{len(found)} runs",
                problems=problems,
                reload=reload,
                samples=samples(runs.runs),
            )
        out.mkdir(parents=True, exist_ok=True)
        with atomic_write(out / "report.html") as file:
            file.write(page)
        return runs, table, not problems

    try:
        while arguments.watch:
            begun = time.monotonic()
            try:
                write(reload=_EVERY)
            except UserError as error:  # no run has the requested row or score yet
                complain(str(error))
            time.sleep(max(_EVERY, 5 * (time.monotonic() - begun)))
    except KeyboardInterrupt:
        print(f"\n{out / 'report.html'} is no longer updated")
    runs, table, whole = write()  # the last page does not reload
    print(out / "report.html")
    if arguments.latex:
        from normlab.reports.latex import latex

        with atomic_write(out / "table.tex") as file:
            file.write(latex(table, baseline=runs.study.baseline, marks=arguments.marks))
        print(out / "table.tex")
    if arguments.figures is not None:
        from normlab.reports.charts import draw_all

        with at_work("drawing figures"):
            paths, lacking = draw_all(runs.runs, table, out, arguments.figures)
        for line in lacking:
            complain(line)
        print(*paths, sep="\n")
    return 0 if whole else 1
