"""`normlab report`: the page and the figures of any runs, while they train too."""

import argparse
import os
import time
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._arguments import HelpFormatter, add_compared, as_path
from normlab.commands._runs import nearest, none_below
from normlab.commands._terminal import at_work, complain
from normlab.config.registry import option_names
from normlab.records.store import without_collection

if TYPE_CHECKING:
    from normlab.commands._translations import TextsAtHand
    from normlab.reports.runs import Run, Watched

HELP = "write the page of any runs, their figures too, or check published studies"

_EXAMPLES = """examples:
  normlab report                          a page of all runs in runs/: report/report.html
  normlab report runs/toy-ln-* runs/toy-bn-* --baseline ln --out paper
  normlab report --watch                  rewrite it while runs train; the browser reloads it
  normlab report --figures svg            also draw figures: report/loss.svg, loss-dark.svg, ...
  normlab report --check                  published studies: fail if a file is not what records say
  normlab report --from results           make their tables, pages and generated blocks again
  normlab report iwslt_norms              of one study, at every scale that it is published at
  normlab report --accept results/bench   a change of evidence is meant: list it as it is now

Runs are folders of runs, as a sweep leaves one, run folders, or record.json files. Their page is
one file that opens without a network: one row per experiment, differences to the baseline paired by
seed, curves, how the runs trained, samples of what they translated, where their configs differ.
Tables and charts download as SVG and CSV. Figures by layer and over training are made of the probes
of a run: train with probe=full. Each figure is drawn for light and for dark pages.

Studies are published by `normlab study run STUDY --publish results`. Evidence itself (records,
curves, hypotheses, reports of benchmarks) is never made again: its checksums are in
results/MANIFEST.sha256, and nothing is made of a study whose evidence differs. --check does not
look at verdicts: normlab claims --verify does.
"""
_EVERY = 2.0  # seconds between two looks at the runs


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab report",
        description=HELP.capitalize() + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument(
        "what",
        nargs="*",
        metavar="RUN|STUDY",
        help="runs and folders of runs, or one published study; default: runs",
    )
    result.add_argument(
        "--out", type=as_path, default=Path("report"), metavar="FOLDER", help="default: report"
    )
    add_compared(result)
    result.add_argument("--watch", action="store_true", help="rewrite the page until Ctrl-C")
    result.add_argument(
        "--figures", choices=("svg", "png"), help="draw figures too, next to the page"
    )
    result.add_argument(
        "--from",
        dest="root",
        type=as_path,
        metavar="FOLDER",
        help="the published studies there, instead of runs; default with a STUDY: results",
    )
    result.add_argument("--check", action="store_true", help="write nothing; name what differs")
    result.add_argument(
        "--accept",
        nargs="+",
        type=as_path,
        metavar="PATH",
        help="list changed, new or lost evidence there in the manifest, and say what it was",
    )
    return result


def main(argv: list[str]) -> int:
    """Write the page of runs, or check or regenerate published studies; 1 if something is wrong.

    Raises ValueError for places without a run, and where nothing is published.
    """
    arguments = parser().parse_args(argv)
    root = arguments.root or Path("results")
    if arguments.accept:
        from normlab.reports.manifest import accept

        for change in accept(root, arguments.accept) or ["nothing has changed"]:
            print(change)
        return 0
    study = _study(arguments.what, root)
    published = study or (not arguments.what and (arguments.check or arguments.root is not None))
    if published:
        return _published(root, study, check=arguments.check)
    if arguments.check:
        raise ValueError("--check is for published studies; the page of runs is made each time")
    return _runs(_places(arguments.what or ["runs"]), arguments)


def _study(what: Sequence[str], root: Path) -> str | None:
    """Return the published study that is asked for; ValueError for studies among runs."""
    studies = option_names("study")
    if len(what) == 1 and (what[0] in studies or _is_published(what[0], root)):
        return what[0]
    if named := [name for name in what if name in studies and not Path(name).exists()]:
        raise ValueError(f"{' '.join(named)}: give one study at a time, and no runs with it")
    return None


def _is_published(name: str, root: Path) -> bool:
    return name == Path(name).name and (root / name).is_dir()


def _places(what: Sequence[str]) -> list[Path]:
    places = [as_path(name) for name in what]
    for place in places:
        if not place.exists():
            studies = get_close_matches(str(place), option_names("study"), n=1)
            near = [*filter(None, [nearest(place)]), *studies]
            meant = f". Did you mean {' or '.join(map(str, near))}?" if near else ""
            raise ValueError(
                f"{place}: no study and no folder of runs; `normlab list studies` and "
                f"`normlab list runs` list them{meant}"
            )
    return places


@without_collection()
def _published(root: Path, study: str | None, *, check: bool) -> int:
    from normlab.reports.manifest import verify

    found = verify(root, study, write=not check)
    for line in found.wrong:
        complain(line)
    for line in found.said:
        print(line)
    if check and study is None and not found.wrong and (root / "claims.md").is_file():
        where = "" if root == Path("results") else f" --results {root}"
        print(f"the ledger: normlab claims --verify{where}")  # its verdicts are not looked at here
    return 1 if found.wrong else 0


def _runs(places: Sequence[Path], arguments: argparse.Namespace) -> int:
    """Write the page of runs, and again whenever they change with `--watch`."""
    from normlab.commands._translations import TextsAtHand
    from normlab.reports.manifest import PAGE
    from normlab.reports.runs import Watched

    watched, text_of, path = Watched(places), TextsAtHand(), arguments.out / PAGE
    if not arguments.watch:
        watched.look()
        return _write(watched, places, path, text_of, arguments)
    reload = 0
    try:
        while True:
            begun = time.monotonic()
            if watched.look():
                reload = max(3, round(5 * (time.monotonic() - begun)))
                try:
                    _write(watched, places, path, text_of, arguments, reload=reload)
                except ValueError as error:  # no run has yet what was asked for
                    complain(str(error))
            time.sleep(max(_EVERY, 5 * (time.monotonic() - begun)))
    except KeyboardInterrupt:
        print(f"\n{path} is no longer rewritten")
    return _write(watched, places, path, text_of, arguments)  # a page that does not reload


def _write(
    watched: "Watched",
    places: Sequence[Path],
    path: Path,
    text_of: "TextsAtHand",
    arguments: argparse.Namespace,
    *,
    reload: int = 0,
) -> int:
    """Write page and figures once and print their paths; 1 where a run cannot be read.

    A run that has not ended is named too, and is no error. Raises ValueError for places without a
    run, and for a baseline or score that no run has.
    """
    from normlab.records.files import atomic_write
    from normlab.reports.arrange import arranged
    from normlab.reports.study_page import runs_page

    found = watched.runs(lambda record: Path(os.path.relpath(record, path.parent)).as_posix())
    for problem in watched.problems:
        complain(problem)
    if not found:
        raise ValueError(none_below(places, " that can be read"))
    for run in found if not reload else ():
        if run.record is None:
            state = "has not ended" if run.now is None else "is running"
            complain(f"{run.name}: {state}; its curves are shown, its scores are not")
    runs = arranged(found, baseline=arguments.baseline, scores=arguments.score)
    heading = ", ".join(str(place) for place in places)
    text = runs_page(runs, heading, problems=watched.problems, text_of=text_of, reload=reload)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(text)
    print(path)
    if arguments.figures is not None:
        _draw(runs.runs, path.parent, arguments.figures)
    return 1 if watched.problems else 0


def _draw(runs: Sequence["Run"], out: Path, form: str) -> None:
    """Draw each figure that the runs have, and say which of them it lacks."""
    from normlab.reports.charts import KINDS, row_looks
    from normlab.reports.figures import draw, write
    from normlab.reports.panels import LIGHT, THEMES

    looks = row_looks(runs, dict.fromkeys(run.planned.row for run in runs))
    for name, kind in KINDS.items():
        panels, others = kind.panels(runs), kind.lacking(runs)
        why = "; ".join(f"{', '.join(names)} ({lack})" for lack, names in others.items())
        if others:
            complain(f"{name} is without {why}" if panels else f"{name} is left out: {why}")
        for theme in THEMES if panels else ():
            ending = "" if theme is LIGHT else f"-{theme.name}"
            path = out / f"{name}{ending}.{form}"
            with at_work(f"drawing {path}"):
                write(draw(panels, looks, theme), path, title=kind.title)
            print(path)
