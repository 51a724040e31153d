"""`normlab reproduce STUDY`: carry out the grid that fills a table of the documents; show it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._terminal import complain
from normlab.records.store import RECORD_FILE, read_record
from normlab.studies import Planned, Study, load_study
from normlab.sweep import Sweep, summary_lines

if TYPE_CHECKING:
    from normlab.records.record import RunRecord

HELP = "carry out a study: the runs of a comparison table, then the table"

_EXAMPLES = """examples:
  normlab reproduce iwslt_norms                          seconds a run: does everything work?
  normlab reproduce bert_norms scale=cpu data_dir=FOLDER
  normlab reproduce bert_norms scale=cpu seeds=1 data_dir=FOLDER
  normlab reproduce iwslt_norms scale=cpu data_dir=FOLDER --publish results
  normlab ls study                                       the studies, and what they cost

key=value are those of `normlab train`, for every run. Start the same command again to go on where
it was stopped: runs that have ended are not made again.
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
        help="scale=smoke|cpu|gpu (default: smoke), seeds=1,2,3, and values of every run",
    )
    result.add_argument("--processes", type=int, help="runs at a time (default: one a GPU or core)")
    result.add_argument("--plan", action="store_true", help="print the runs and their cost alone")
    result.add_argument(
        "--publish",
        type=Path,
        metavar="FOLDER",
        help="write table and records to FOLDER/STUDY/SCALE",
    )
    return result


def main(argv: list[str]) -> int:
    """Plan, run what has not ended, print the table; 1 where a run failed."""
    arguments = parser().parse_intermixed_args(argv)
    study = load_study(arguments.study)
    scale, seeds, extra = _settings(study, arguments.overrides)
    planned = study.planned(scale, seeds=seeds, extra=extra)
    places = _places(planned)
    open_runs = [run for run, place in zip(planned, places, strict=True) if not _ended(place)]
    print(_cost(study, scale, planned, open_runs))
    if arguments.plan:
        for run in planned:
            print(f"  normlab train {' '.join(run.overrides)}")
        return 0
    failed = _carry_out(study, open_runs, places[0].parents[1], arguments.processes)
    runs = [(run, _record(place)) for run, place in zip(planned, places, strict=True)]
    from normlab.reports.render import markdown
    from normlab.reports.table import build

    print()
    print(markdown(build(study, scale, runs)), end="")
    if arguments.publish is not None:
        from normlab.reports.published import publish

        print(f"written to {publish(arguments.publish, study, scale, runs)}")
    return 1 if failed else 0


def _settings(
    study: Study, overrides: Sequence[str]
) -> tuple[str, list[int] | None, tuple[str, ...]]:
    """Take scale and seeds from the overrides; the rest is for every run."""
    scale, seeds, extra = "smoke", None, list[str]()
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise ValueError(f"{override}: expected key=value, such as scale=cpu")
        if key == "scale":
            scale = value
        elif key in ("seeds", "seed"):
            if not all(part.isdigit() for part in value.split(",")):
                raise ValueError(f"{override}: expected numbers, such as seeds=1,2,3")
            seeds = [int(part) for part in value.split(",")]
        else:
            extra.append(override)
    study.scale(scale)
    return scale, seeds, tuple(extra)


def _places(planned: Sequence[Planned]) -> list[Path]:
    """Return the folder of each run; composing them all finds a wrong value before any starts."""
    from normlab.config import compose, to_dict
    from normlab.records.store import RunStore

    places: list[Path] = []
    for run in planned:
        config = to_dict(compose(run.overrides))
        places.append(RunStore(config["runs_dir"]).run_dir(config))
    return places


def _record(place: Path) -> "RunRecord | None":
    """Return the record of a run, None where there is none or it is damaged, which is said."""
    try:
        return read_record(place / RECORD_FILE) if (place / RECORD_FILE).is_file() else None
    except ValueError as error:
        complain(str(error))
        return None


def _ended(place: Path) -> bool:
    record = _record(place)
    return record is not None and record.outcome.status in ("finished", "diverged")


def _cost(study: Study, scale: str, planned: Sequence[Planned], left: Sequence[Planned]) -> str:
    size = study.scale(scale)
    hours = len(left) * size.minutes / 60
    return (
        f"{study.name} at scale={scale}: {len(planned)} runs, {len(planned) - len(left)} ended, "
        f"{len(left)} to go, about {hours:.1f} h one after the other; data: {size.data}"
    )


def _carry_out(study: Study, runs: Sequence[Planned], root: Path, processes: int | None) -> bool:
    """Run what has not ended; tell whether any failed."""
    if not runs:
        return False
    logs = root / ".sweeps" / study.name
    cells = [run.overrides for run in runs]
    ended = Sweep(cells, processes=processes, logs=logs, tell=lambda line: print(line, flush=True))
    found = ended.run()
    for line in summary_lines(found, logs):
        print(line)
    return any(cell.status for cell in found)
