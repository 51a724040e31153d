"""`normlab report`: writes a page about runs, finished or in training, and their figures."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._arguments import (
    Parser,
    add_compared,
    as_path,
    check_compared,
    command_parser,
    conditions,
)
from normlab.errors import UserError
from normlab.terminal import print_error

if TYPE_CHECKING:
    from normlab.reports.pages.sections import TableSection
    from normlab.reports.report import RunsReport

_EXAMPLES = """examples:
  normlab report                    a page of all runs: report/report.html
  normlab report runs/toy-ln-* runs/toy-bn-* --baseline ln --out paper
  normlab report --watch            rewrite it while runs train
  normlab report --figures pdf      also figures: report/bleu_by_norm.pdf, ...
  normlab report results/batch_size/small --where norm=ln,bn     published runs

RUN is a run folder, a folder of runs (such as a sweep's) or a record.json. The
page is one file that opens offline: the answer in a sentence, scores by what a
sweep varies, one row per experiment, differences from the baseline paired by
seed, curves, training statistics, test sentences with their translations, and
config differences. Runs whose scores cannot be compared (another task, model or
budget) form separate tables, each with its charts. Tables and charts can be
saved as SVG and CSV. Figures by layer and over training need the probes that
measure their values (probe=full for all), and at least as many steps as the
`every` of a probe.
"""
_EVERY = 5  # minimum seconds between two versions of the page


def main(argv: list[str]) -> int:
    """Write the page about runs, repeatedly with `--watch`. Return 1 if a run cannot be read.

    Raises UserError for places without runs, or a baseline or score that no run has.
    """
    arguments = _parser().parse_args(argv)
    check_compared(arguments)
    from normlab.reports.report import RunsReport, for_paper, write_latex

    report = RunsReport(
        arguments.runs,
        arguments.out,
        conditions=conditions(arguments.where),
        baseline=arguments.baseline,
        scores=arguments.columns,
        order=arguments.order,
        names=arguments.names,
        data_dir=arguments.data_dir,
    )
    if arguments.watch:
        _rewrite_until_interrupted(report)
    sections, whole = report.write_page()
    print(report.page, flush=True)
    if arguments.latex or arguments.figures is not None:
        sections = [for_paper(section) for section in sections]
    if arguments.latex:
        file = write_latex(sections, arguments.out / "table.tex", arguments.uncertainty)
        print(file, flush=True)
    if arguments.figures is not None:
        _draw(sections, arguments.out, arguments.figures, columns_only=bool(arguments.columns))
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
    add("--figures", choices=("svg", "pdf", "png"), help="also draw figures, of --columns or all")
    return parser


def _rewrite_until_interrupted(report: "RunsReport") -> None:
    """Rewrite the page every few seconds until Ctrl-C. In a browser, it reloads itself."""
    try:
        while True:
            begun = time.monotonic()
            try:
                report.write_page(reload=_EVERY)
            except UserError as error:  # no run has the requested row or score yet
                print_error(str(error))
            time.sleep(max(_EVERY, 5 * (time.monotonic() - begun)))
    except KeyboardInterrupt:
        print(f"\n{report.page} is no longer updated")


def _draw(
    sections: "Sequence[TableSection]", folder: Path, form: str, *, columns_only: bool
) -> None:
    """Draw figures, and print each path when its figure is done (a dozen may take a minute)."""
    from normlab.reports.figures.fonts import lack_of_glyphs
    from normlab.reports.figures.paper_figures import LACK
    from normlab.reports.report import draw_figures

    lacking, boxes = dict[str, None](), dict[str, None]()
    for name, path, texts in draw_figures(sections, folder, form, columns_only=columns_only):
        if path is None:
            lacking[name] = None
        else:
            print(path, flush=True)
        boxes |= dict.fromkeys(texts)
    if boxes:
        print_error(lack_of_glyphs(boxes))
    if lacking:
        names = f"figure{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}"
        print_error(f"{names} skipped: {LACK}")
