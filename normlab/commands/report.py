"""`normlab report`: the page and the figures of any runs, while they train too."""

import argparse
import os
import time
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from normlab.commands._arguments import add_compared, as_path, command_parser
from normlab.commands._runs import nearest, none_below
from normlab.commands._terminal import at_work, complain
from normlab.config.registry import option_names
from normlab.records.store import without_collection

_EXAMPLES = """examples:
  normlab report                          a page of all runs in runs/: report/report.html
  normlab report runs/toy-ln-* runs/toy-bn-* --baseline ln --out paper
  normlab report --watch                  rewrite it while runs train; the browser reloads it
  normlab report --figures svg            also draw figures: report/loss.svg, loss-dark.svg, ...

Runs are folders of runs, as a sweep leaves one, run folders, or record.json files. Their page is
one file that opens without a network: one row per experiment, differences to the baseline paired by
seed, curves, how the runs trained, samples of what they translated, where their configs differ.
Tables and charts download as SVG and CSV. Figures by layer and over training are made of the probes
of a run: train with probe=full. Each figure is drawn for light and for dark pages.

Published studies have pages of their own: normlab study publish and normlab study verify.
"""
_EVERY = 2.0  # seconds between two looks at the runs


def main(argv: list[str]) -> int:
    """Write the page of runs, and again whenever they change with `--watch`; 1 for a damaged run.

    Raises ValueError for places without a run.
    """
    parser = command_parser("report", "Write the page of any runs, and their figures.", _EXAMPLES)
    parser.add_argument(
        "runs",
        nargs="*",
        default=["runs"],
        metavar="RUN",
        help="run folders and folders of runs; default: runs",
    )
    parser.add_argument(
        "--out", type=as_path, default=Path("report"), metavar="FOLDER", help="default: report"
    )
    add_compared(parser)
    parser.add_argument("--watch", action="store_true", help="rewrite the page until Ctrl-C")
    parser.add_argument(
        "--figures", choices=("svg", "png"), help="draw figures too, next to the page"
    )
    arguments = parser.parse_args(argv)
    page = _Page([as_path(name) for name in arguments.runs], arguments)
    if not arguments.watch:
        page.runs.look()
        return page.write()
    try:
        while True:
            begun = time.monotonic()
            if page.runs.look():
                try:
                    page.write(reload=max(3, round(5 * (time.monotonic() - begun))))
                except ValueError as error:  # no run has yet what was asked for
                    complain(str(error))
            time.sleep(max(_EVERY, 5 * (time.monotonic() - begun)))
    except KeyboardInterrupt:
        print(f"\n{page.path} is no longer rewritten")
    return page.write()  # a page that does not reload


class _Page:
    """The page of the runs at some places, which may change."""

    def __init__(self, places: Sequence[Path], arguments: argparse.Namespace) -> None:
        from normlab.commands._translations import Texts
        from normlab.records.packed import address_of
        from normlab.reports.manifest import PAGE
        from normlab.reports.runs import Watched

        for place in places:
            if not place.exists() and address_of(place) is None:
                near = [*filter(None, [nearest(place)])]
                near += get_close_matches(str(place), option_names("study"), n=1)
                meant = f". Did you mean {' or '.join(map(str, near))}?" if near else ""
                raise ValueError(
                    f"{place}: no folder of runs; `normlab list runs` names those of runs/{meant}"
                )
        self.places, self.arguments = places, arguments
        self.runs, self.path, self.text_of = Watched(places), arguments.out / PAGE, Texts()

    @without_collection()
    def write(self, *, reload: int = 0) -> int:
        """Write page and figures once and print their paths; 1 where a run cannot be read.

        A run that has not ended is named too, and is no error. Raises ValueError for places without
        a run, and for a baseline or score that no run has.
        """
        from normlab.records.files import atomic_write
        from normlab.reports.arrange import arranged
        from normlab.reports.study_page import runs_page

        out, asked, problems = self.path.parent, self.arguments, self.runs.problems
        found = self.runs.runs(lambda record: Path(os.path.relpath(record, out)).as_posix())
        for problem in problems:
            complain(problem)
        if not found:
            raise ValueError(none_below(self.places, " that can be read"))
        for run in found if not reload else ():
            if run.record is None:
                state = "has not ended" if run.now is None else "is running"
                complain(f"{run.name}: {state}; its curves are shown, its scores are not")
        runs = arranged(found, baseline=asked.baseline, scores=asked.score)
        heading = ", ".join(map(str, self.places))
        text = runs_page(runs, heading, problems=problems, text_of=self.text_of, reload=reload)
        out.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write(text)
        print(self.path)
        if asked.figures is not None:
            from normlab.reports.figures import draw_all

            with at_work("drawing figures"):
                paths, lacking = draw_all(runs.runs, out, asked.figures)
            for text in lacking:
                complain(text)
            for path in paths:
                print(path)
        return 1 if problems else 0
