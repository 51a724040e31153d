"""Arguments shared by several commands: parsers, and the runs at the paths on the command line."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands import DOES
from normlab.errors import UserError
from normlab.records.record import RunRecord
from normlab.records.store import CONFIG_FILE, RECORD_FILE, read_record, select
from normlab.terminal import at_work, print_error

if TYPE_CHECKING:
    from normlab.reports.runs import Run
    from normlab.training.loaded import LoadedRun


_RUNS = Path("runs")  # the folder of runs if runs_dir is not set


class Parser(argparse.ArgumentParser):
    """A parser that, for an unknown flag, suggests a similar flag or a `key=value`."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the arguments; the error for unknown ones suggests what was meant."""
        return self._known(*self.parse_known_args(args, namespace))

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the arguments, where flags and words may be mixed; see `parse_args`."""
        return self._known(*self.parse_known_intermixed_args(args, namespace))

    def _known(self, arguments: Any, unknown: Sequence[str]) -> Any:
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
        return arguments

    def _meant(self, unknown: Sequence[str]) -> str:
        from normlab.config.overrides import meant

        flag = next((word for word in unknown if word.startswith("--")), "").split("=")[0]
        if near := get_close_matches(flag, self._option_string_actions, n=1, cutoff=0.8):
            return f". Did you mean {near[0]}?"
        if flag and any("key=value" in str(action.metavar) for action in self._actions):
            key = flag.removeprefix("--").replace("-", "_")
            return f"; settings are given as key=value.{meant(key)}"
        return ""


def command_parser(name: str, epilog: str | None, does: str = "") -> Parser:
    """Return the parser of `normlab NAME`; `does` is what an action such as `norm new` does."""
    does = does or DOES[name]
    return Parser(
        f"normlab {name}",
        description=f"{does[0].upper()}{does[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def action_of(
    command: str, argv: Sequence[str], actions: Mapping[str, str], epilog: str
) -> tuple[str, list[str]]:
    """Return the chosen action of a command, and the arguments after it.

    Prints the help, or an error, and exits if none of the `actions` is named.
    """
    action, *rest = argv or ["--help"]
    if action not in actions:
        parser = command_parser(command, epilog)
        parsers = parser.add_subparsers(metavar="|".join(actions))
        for name, does in actions.items():
            parsers.add_parser(name, help=does)
        parser.parse_args([action])
    return action, rest


def add_run(parser: argparse.ArgumentParser, run: str) -> None:
    """Add RUN, the settings that replace the run's, and `--weights`."""
    add = parser.add_argument
    add("run", type=as_run, metavar="RUN", help=run)
    add("changes", nargs="*", metavar="key=value", help="settings that replace the run's")
    add("--weights", metavar="NAME", help="last, average, best_<score>; default: the tested ones")


def add_compared(parser: argparse.ArgumentParser) -> None:
    """Add the runs to compare, and the flags for baseline, columns, order, names and LaTeX."""
    add = parser.add_argument
    add("runs", nargs="*", type=as_run, default=[_RUNS], metavar="RUN", help="default: all in runs")
    add("--baseline", metavar="ROW", help="the row (or its norm) to compare with; default: ln")
    text = "the columns, in order: test/bleu valid/loss"
    add("--columns", action="extend", nargs="+", default=[], metavar="SCORE", help=text)
    text = "the rows (or their norms) after the baseline, in order: bn none"
    add("--order", action="extend", nargs="+", default=[], metavar="ROW", help=text)
    text = "names of norms or rows, scores and axes: ln=LayerNorm test/bleu=BLEU"
    add("--names", action="extend", nargs="+", default=[], metavar="NAME=TEXT", help=text)
    add("--latex", action="store_true", help="the table in LaTeX (booktabs)")
    uncertainty = parser.add_mutually_exclusive_group()
    for name, what in (("stars", "stars for p values"), ("intervals", "differences, intervals")):
        text = f"in LaTeX: {what}"
        uncertainty.add_argument(
            f"--{name}", dest="uncertainty", action="store_const", const=name, help=text
        )
    parser.set_defaults(uncertainty="")
    add("--data-dir", type=as_path, metavar="FOLDER", help="folder of the test text, if moved")
    text = "only ended runs with this value, or one of several (norm=ln,bn); may be repeated"
    add("--where", action="append", default=[], metavar="KEY=VALUE", help=text)


def add_notes(parser: argparse.ArgumentParser) -> None:
    """Add `--notes`, which prints the whole legend of a table."""
    text = "print all notes below the table, in full"
    parser.add_argument("--notes", action="store_true", help=text)


def as_path(text: str) -> Path:
    """Return an argument as a path; an empty argument, as from an unset variable, is an error."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got nothing; is a shell variable unset?")
    return Path(text)


def as_names(text: str) -> list[str]:
    """Return the names in `NAME,...`."""
    return [name for name in text.split(",") if name]


def as_run(text: str) -> Path:
    """Return RUN as a path: itself or, if it does not exist, the run of that name in `runs/`."""
    place, below = as_path(text), _RUNS / text
    return below if not place.exists() and below.exists() else place


def conditions(where: Iterable[str]) -> dict[str, str]:
    """Return the values of `--where KEY=VALUE` by key; UserError for any other form."""
    values: dict[str, str] = {}
    for text in where:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise UserError(f"--where {text}: expected KEY=VALUE, such as --where norm=bn")
        values[key] = value
    return values


def matching_runs(runs: "Sequence[Run]", where: Iterable[str]) -> "list[Run]":
    """Return the runs that match every `KEY=VALUE` or `KEY=VALUE,VALUE` of `--where`.

    A run without a record matches nothing. Raises UserError for any other form, or a key that no
    run has.
    """
    matching = [*runs]
    for key, value in conditions(where).items():
        ended = [run for run in matching if run.record is not None]
        values = {value, *value.split(",")}  # a value may contain commas itself
        fitting = {
            id(run) for each in values for run in select(ended, {key: each}, lambda r: r.record)
        }
        matching = [run for run in ended if id(run) in fitting]
    return matching


def check_compared(arguments: argparse.Namespace) -> None:
    """Raise UserError for a flag of LaTeX without `--latex`, or a name in `--columns`."""
    if arguments.uncertainty and not arguments.latex:
        raise UserError(f"--{arguments.uncertainty} needs --latex")
    if column := next((each for each in arguments.columns if "=" in each), None):
        raise UserError(f"--columns {column}: names are given as --names {column}")


# The runs at paths or addresses -------------------------------------------------------------------


def ended_runs(places: Sequence[Path]) -> dict[Path, RunRecord]:
    """Return the records of all runs that have ended at or below some places, by run folder.

    Raises UserError for a place without runs, a damaged run, or the folder of an unfinished run.
    """
    from normlab.reports.runs import read_runs

    for place in places:
        if (place / CONFIG_FILE).is_file() and not (place / RECORD_FILE).is_file():
            read_record(place)  # raises, since the run has not ended
    runs, problems = read_runs(places, ended=True)
    if problems or not runs:
        raise UserError(problems[0] if problems else none_below(places))
    return {run.folder: run.record for run in runs if run.folder and run.record}


def runs_of(place: Path) -> list[Path]:
    """Return the run folders at RUN: one run, or all seeds of one experiment in order.

    Raises UserError for a place without runs, with a damaged run, or with several experiments.
    """
    records = ended_runs([place])
    if len({record.fingerprint for record in records.values()}) > 1:
        raise UserError(f"{place} has several experiments; name one, such as {next(iter(records))}")
    return sorted(records, key=lambda folder: records[folder].seed)


def one_run(place: Path) -> Path:
    """Return the folder of the one run at RUN; UserError for several runs."""
    folders = runs_of(place)
    if len(folders) > 1:
        raise UserError(f"{place} has {len(folders)} runs; name one, such as {folders[0]}")
    return folders[0]


def none_below(places: Sequence[Path], which: str = "") -> str:
    """Return a message that there are no runs at or below these places, with similar paths."""
    text = f"no run{which} below {', '.join(map(str, places))}"
    near = [
        str(path)
        for place in places
        if (path := nearest(place) or nearest(_RUNS / place)) not in (None, place)
    ]
    return text + (f". Did you mean {' '.join(near)}?" if near else "; `normlab train` makes one")


def nearest(place: Path) -> Path | None:
    """Return the most similar existing path or address; None if there is none."""
    if place.exists():
        return place
    folder = nearest(place.parent)
    if folder is None or not folder.is_dir():
        return None
    name, *row = place.name.split(":", 1)
    near = get_close_matches(name, [path.name for path in folder.iterdir()], n=1)
    return folder / ":".join([near[0], *row]) if near else None


def load(
    folder: Path,
    changes: Sequence[str],
    *,
    weights: str | None,
    fold: bool = False,
    data: bool = True,
) -> "LoadedRun":
    """Load a run like `normlab.training.loaded.load_run`; warn if it did not finish."""
    with at_work(f"loading {folder}"):
        from normlab.training.loaded import load_run

        run = load_run(folder, [*changes], fold=fold, weights=weights, data=data)
        run.runtime.set_torch()
    say_stopped(folder, run.record)
    return run


def say_stopped(folder: Path, record: RunRecord) -> None:
    """Warn if the weights of a run are not from its last planned step."""
    if (ended := record.outcome).status != "finished":
        end = f"{ended.status} at step {ended.step:,}"
        print_error(f"{folder}: {end}, so these are not the weights of a whole run")
