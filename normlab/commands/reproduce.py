"""`normlab reproduce STUDY`: carry out the grid that fills a table of the documents; show it."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from normlab.commands._cut import read_rows, read_seeds
from normlab.commands._plan import Item, Plan, head
from normlab.commands._probes import Probes, Subject
from normlab.commands._terminal import complain, print_prose
from normlab.studies import Planned, Study, load_study
from normlab.sweep import Sweep, summary_lines

_BUILT_IN = ("normlab.data.toy.", "normlab.data.documents.builtin.")

HELP = "carry out a study: the runs of a comparison table, then the table"

_EXAMPLES = """examples:
  normlab reproduce iwslt_norms                          seconds a run: does everything work?
  normlab reproduce bert_norms scale=cpu data_dir=FOLDER
  normlab reproduce bert_norms scale=cpu data_dir=FOLDER --plan    what it would take here
  normlab reproduce bert_norms scale=cpu data_dir=FOLDER seeds=1-3 rows=ln,bn
  normlab reproduce iwslt_norms rows="[ln,'bn, padding counted']"
  normlab reproduce iwslt_norms scale=cpu data_dir=FOLDER --publish results
  normlab reproduce iwslt_norms scale=cpu placement=pre  a part of the grid
  normlab ls study                                       the studies, and what they cost

key=value are those of `normlab train`, for every run. rows= takes names, beginnings of names, and
the numbers that --plan shows. Before it begins, each configuration is tried for some seconds, which
gives the hours and the memory; what was measured is kept in the folder of runs. Start the same
command again to go on where it was stopped: runs that have ended are not made again.
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab reproduce",
        description=HELP.capitalize() + ".",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("study", metavar="STUDY", help="normlab ls study lists them")
    result.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="scale=smoke|cpu|gpu (default: smoke), rows=, seeds=, and values of every run",
    )
    result.add_argument("--processes", type=int, help="runs at a time (default: one a GPU or core)")
    result.add_argument(
        "--plan", action="store_true", help="run nothing: updates, data, memory and hours by row"
    )
    result.add_argument(
        "--commands", action="store_true", help="print also the `normlab train` of each run"
    )
    result.add_argument(
        "--so-far", action="store_true", help="run nothing: the table of what has ended"
    )
    result.add_argument(
        "--publish",
        type=Path,
        metavar="FOLDER",
        help="write table, page, records and curves to FOLDER/STUDY/SCALE",
    )
    return result


def main(argv: list[str]) -> int:
    """Plan, run what has not ended, print the table; 1 where a run failed or data cannot be had."""
    arguments = parser().parse_intermixed_args(argv)
    study = load_study(arguments.study)
    scale, planned, extra = _asked(study, arguments.overrides)
    configs = configs(planned)
    places = places(planned, configs)
    then = "the table goes without it" if arguments.so_far else "it is made again"
    found = [record_at(place, then) for place in places]
    anew = "observe.other_code=rerun" in extra
    ended = [has_ended(each, anew) for each in found]
    open_runs = [run for run, done in zip(planned, ended, strict=True) if not done]
    if arguments.so_far:
        print_prose(head(study, scale, planned, open_runs))
        open_runs = []
    else:
        items = [Item(*each, None) for each in zip(planned, configs, ended, strict=True)]
        minutes = study.scale(scale).minutes
        probes = Probes(places[0].parents[1], processes=arguments.processes, minutes=minutes)
        # A plan whose costs are known already needs no data.
        needs = open_runs and not (arguments.plan and not probes.missing(_subjects(items)))
        problem = data_problem(open_runs[0]) if needs else None
        plan = _measured(study, scale, items, probes, problem)
        plan.show()
        if arguments.commands:
            for run in planned:
                print(f"  normlab train {shlex.join(run.overrides)}")
        if problem is not None:
            complain(what_instead(study, scale, problem))
        if arguments.plan:
            return 0
        if problem is not None:
            return 1
    failed = _carry_out(study, open_runs, places[0].parents[1], arguments.processes)
    runs = [(run, record_at(place)) for run, place in zip(planned, places, strict=True)]
    from normlab.reports.render import markdown
    from normlab.reports.table import build

    print()
    print(markdown(build(study, scale, runs)), end="")
    if arguments.publish is not None:
        from normlab.reports.published import publish

        folder = publish(arguments.publish, study, scale, runs, folders=places)
        print(f"written to {folder}")
    return 1 if failed else 0


def _asked(study: Study, overrides: Sequence[str]) -> tuple[str, list[Planned], tuple[str, ...]]:
    """Return the scale, the runs that are asked for, and the overrides that are for every run."""
    scale, seeds, rows, extra = "smoke", None, None, list[str]()
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise ValueError(f"{override}: expected key=value, such as scale=cpu")
        if key == "scale":
            scale = value
        elif key in ("seeds", "seed"):
            seeds = read_seeds(value)
        elif key in ("rows", "row"):
            rows = value
        else:
            extra.append(override)
    names = study.scale(scale).rows
    kept = None if rows is None else read_rows(rows, names)
    return scale, study.planned(scale, seeds=seeds, rows=kept, extra=extra), tuple(extra)


def _measured(
    study: Study,
    scale: str,
    items: Sequence[Item],
    probes: Probes,
    problem: str | None,
) -> Plan:
    """Return the plan of runs with what those to go cost, measured where the data can be had."""
    plan = Plan(study, scale, items, len(probes.places))
    if problem is not None:
        return replace(plan, unmeasured="the data cannot be had")
    missing = probes.missing(_subjects(items))
    if missing:
        seconds = probes.seconds(len(missing))
        print(
            f"measuring {len(missing)} configuration(s), {len(probes.places)} at a time, for "
            f"{seconds:.0f} s each and the time to start ...",
            flush=True,
        )
        probes.measure(missing)
    costs = [None if item.ended else probes.cost(item.config) for item in items]
    problems = [cost for cost in costs if isinstance(cost, str)]
    return replace(
        plan,
        items=[
            replace(item, cost=None if isinstance(cost, str) else cost)
            for item, cost in zip(items, costs, strict=True)
        ],
        unmeasured=problems[0] if problems else None,
    )


def _subjects(items: Sequence[Item]) -> list[Subject]:
    """Return the runs to go, as they are measured."""
    return [Subject(item.config, item.run.overrides) for item in items if not item.ended]


def _carry_out(study: Study, runs: Sequence[Planned], root: Path, processes: int | None) -> bool:
    """Run what has not ended; tell whether any failed."""
    if not runs:
        return False
    logs = root / ".sweeps" / study.name
    cells = [run.overrides for run in runs]
    sweep = Sweep(cells, processes=processes, logs=logs, tell=lambda line: print(line, flush=True))
    try:
        found = sweep.run()
    except KeyboardInterrupt:
        complain("stopped; start the same command again to go on")
        raise
    for line in summary_lines(found, logs):
        print(line)
    return any(cell.status for cell in found)
