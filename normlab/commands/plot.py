"""`normlab plot`: the figures of runs, as SVG or PNG, each for light and for dark pages."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from normlab.commands._at_work import at_work
from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._runs import nearest
from normlab.commands._terminal import complain
from normlab.reports.figures import style
from normlab.reports.figures.kinds import KINDS, absent_panels
from normlab.reports.figures.runs import Experiment, Run, experiments, find_runs, read_run

HELP = "draw runs: loss with spikes, gradient and TID by layer, statistics over training"

_EXAMPLES = """examples:
  normlab plot                              all runs below runs/, into figures/
  normlab plot runs/toy-bn-pre-* runs/toy-ln-pre-*
  normlab plot runs/toy-bn-pre-*/seed1 --kind loss --format png
  normlab plot --kind gradient_by_layer --kind tid_by_layer --out paper/figures

Figures by layer and over training are those of the probes of a run: train with probe=full. Each
figure is written twice, NAME for light pages and NAME-dark for dark ones.
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab plot",
        description="Draw runs.",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument(
        "runs",
        nargs="*",
        type=as_path,
        metavar="RUN",
        help="a run folder, or a folder of runs; default: all of --runs-dir",
    )
    result.add_argument("--out", type=as_path, default=Path("figures"), help="default: figures")
    result.add_argument("--format", choices=("svg", "png"), default="svg", help="default: svg")
    result.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        metavar="KIND",
        help=f"only this figure: {', '.join(KINDS)}; may be repeated; default: each that the runs "
        "have figures for",
    )
    result.add_argument("--runs-dir", type=as_path, default=Path("runs"), help="default: runs")
    return result


def main(argv: list[str]) -> int:
    """Write the figures and print their paths; what is left out is said, 1 for a damaged file.

    Raises `ValueError` for a folder without a run that can be read, seeds that do not compare, and
    a figure asked for that no run has.
    """
    arguments = parser().parse_args(argv)
    places = arguments.runs or [arguments.runs_dir]
    for place in places:
        if (near := nearest(place)) is not None:
            raise ValueError(f"{place}: no such run. Did you mean {near}?")
    with at_work("reading the runs"):
        folders = {folder.resolve(): folder for place in places for folder in find_runs(place)}
        tasks: dict[str, list[Run]] = {}
        problems: list[str] = []
        for folder in folders.values():
            try:
                run = read_run(folder)
            except ValueError as error:
                problems.append(str(error))
            else:
                tasks.setdefault(run.task, []).append(run)
    for problem in problems if tasks else problems[:-1]:
        complain(f"left out: {problem}")
    if not tasks:
        raise ValueError(problems[-1])
    for task, runs in tasks.items():
        # Losses of different tasks do not compare, so they share no figure.
        out = arguments.out / task if len(tasks) > 1 else arguments.out
        _draw(experiments(runs), out, form=arguments.format, asked=arguments.kind)
    return 1 if problems else 0


def _draw(
    drawn: Sequence[Experiment], out: Path, *, form: str, asked: Iterable[str] | None
) -> None:
    for name in asked or KINDS:
        kind = KINDS[name]
        able, others = kind.split(drawn)
        why = "; ".join(f"{', '.join(names)} ({lack})" for lack, names in others.items())
        if not able and asked:
            raise ValueError(f"--kind {name}: no run has it: {why}")
        if others:
            complain(f"{name} is without {why}" if able else f"{name} is left out: {why}")
        if name == "over_training" and able and (absent := absent_panels(able)):
            complain(
                f"{name} is without the panels of {', '.join(absent)}: "
                "no run has their figures; probe=full adds those that fit the norms"
            )
        for theme in style.THEMES if able else ():
            ending = "" if theme is style.LIGHT else f"-{theme.name}"
            path = out / f"{name}{ending}.{form}"
            with at_work(f"drawing {path}"):
                style.write(kind.draw(able, theme), path, title=kind.title)
            print(path)
