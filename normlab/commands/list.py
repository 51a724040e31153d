"""`normlab list`: lists options of config groups, keys of a run, and runs on disk."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from normlab.commands._arguments import as_path, command_parser
from normlab.config import folders, registry
from normlab.config.experiments import EXPERIMENT
from normlab.config.key_list import config_keys
from normlab.config.suggestions import choice_of, did_you_mean
from normlab.errors import UserError
from normlab.formats import estimated
from normlab.records.record import RunRecord, read_number
from normlab.records.store import PROGRESS_FILE, RUNS, RunStore, read_progress
from normlab.terminal import print_error, print_lines, print_prose

_SILENT = 120.0  # seconds without progress after which a run counts as stopped

_EXAMPLES = """examples:
  normlab list               every group and its options
  normlab list norms         the norms by the axes they pool over
  normlab list studies       the studies, with their cost at each scale
  normlab list keys          all keys with default, allowed values and meaning
  normlab list runs          the runs in runs/, with their progress

Names may be singular or plural. When output goes to a pipe or file, each entry
is printed in full on one line:
  normlab list keys | grep warmup
"""


class Listing(NamedTuple):
    """A table, notes, and messages about runs that could not be read."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()
    problems: Sequence[str] = ()


def main(argv: list[str]) -> int:
    """Print the list. Return 1 if a run is damaged. Raises `UserError` for an unknown kind."""
    parser = command_parser("list", _EXAMPLES)
    parser.add_argument("kind", nargs="?", help="a config group such as norms, `keys` or `runs`")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per row")
    text = "folder of runs; default: runs"
    parser.add_argument("--runs-dir", type=as_path, metavar="FOLDER", help=text)
    arguments = parser.parse_args(argv)
    listing = _listing(arguments.kind, arguments.runs_dir)
    if arguments.json:
        rows = [dict(zip(listing.columns, row, strict=True)) for row in listing.rows]
        print(json.dumps(rows, indent=1))
    else:
        texts = [[f"{v:,}" if isinstance(v, int) else str(v) for v in row] for row in listing.rows]
        print_lines(listing.columns, texts, numeric=["step"], whole=listing.columns[:1])
        for note in listing.notes:
            print_prose(note)
    for problem in listing.problems:
        print_error(problem)
    return 1 if listing.problems else 0


def _listing(kind: str | None, runs_dir: Path | None) -> Listing:
    if runs_dir and kind not in ("runs", "run"):
        raise UserError("--runs-dir is for normlab list runs; omit it")
    groups = folders.groups()
    if kind is None:
        rows = [[name, " ".join(registry.option_names(name))] for name in groups]
        note = "`normlab list GROUP` describes the options; `normlab list runs` lists the runs."
        return Listing(["group", "options"], rows, [note])
    kinds = [*groups, "keys", "runs"]
    singular = {form: name for name in kinds for form in (name, f"{name}s", f"{name[:-1]}ies")}
    match singular.get(kind, kind):
        case "runs" | "run":
            return _runs(runs_dir or RUNS)
        case "keys" | "key":
            note = "`normlab list keys | grep KEY` prints the whole text, and "
            note += "`normlab train norm=bn --cfg job` the values that options set"
            columns = ["key", "default", "allowed", "what it is"]
            return Listing(columns, config_keys(), [note])
        case "norm":
            return _norms()
        case "study":
            return _studies()
        case group if group in groups:
            rows = [[option.name, option.description] for option in registry.options(group)]
            copy = (
                f"to change an experiment, copy its file from {folders.CONFIG_DIR / EXPERIMENT}; "
                "then"
            )
            notes = [f"{copy} normlab train my.yaml"] if group == EXPERIMENT else []
            return Listing([group, "what it is"], rows, notes)
    choice = choice_of(kinds, "normlab list", did_you_mean(kind, kinds))
    raise UserError(f"{kind!r:.60} is not a group or list{choice}")


def _norms() -> Listing:
    """List the norms, sorted by what they pool over and then by name."""
    rows = []
    for option in registry.options("norm"):
        rows.append([option.name, option.pools_over or "-", option.description])
    rows.sort(key=lambda row: row[1])
    note = "`normlab explain NORM` shows one; `normlab norm card NORM` examines it."
    return Listing(["norm", "pools over", "what it is"], rows, [note])


def _studies() -> Listing:
    from normlab.studies.load import load_study

    rows = []
    for option in registry.options("study"):
        study = load_study(option.name)
        costs = [f"{scale}: {study.cost_text(scale)}" for scale in study.scales]
        rows.append([option.name, option.description, "; ".join(costs)])
    note = "The costs are estimates for one run at a time on a core with AVX512, at scale=paper on "
    note += "a GPU. `normlab list studies | grep STUDY` prints the whole text."
    return Listing(["study", "what it is", "cost by scale"], rows, [note])


def _runs(runs_dir: Path) -> Listing:
    store = RunStore(runs_dir)
    columns = ["run", "outcome", "step", "score", "tags"]
    rows: list[list[Any]] = [
        [str(path), record.outcome.status, record.outcome.step, _score(record), _tags(record)]
        for path, record in store.entries()
    ]
    rows += [[str(path.parent), "damaged", "", "", ""] for path, _ in store.damaged]
    rows += [[str(path), *_progress(path), ""] for path in store.open]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    notes = [] if rows else [f"{runs_dir} has no runs; `normlab train` starts one"]
    if store.open:
        notes.append("runs without an outcome show their last progress; rerun one to resume it")
    return Listing(columns, rows, notes, [message for _, message in store.damaged])


def _progress(folder: Path) -> list[str]:
    """Return the phase, step and loss of an unfinished run, and the time left unless it stopped."""
    if (now := read_progress(folder)) is None:
        return ["no record yet", "", ""]
    done, total, loss, left = (read_number(now[key]) for key in ("done", "total", "loss", "left"))
    phase = str(now["phase"])
    if time.time() - (folder / PROGRESS_FILE).stat().st_mtime > _SILENT:
        phase, left = f"stopped in {phase}", None
    step = " of ".join(f"{n:,.0f}" for n in (done, total) if n is not None)
    progress = [] if loss is None else [f"loss {loss:.4g}"]
    progress += [] if left is None else [f"about {estimated(left)} left"]
    return [phase, step, ", ".join(progress)]


def _tags(record: RunRecord) -> str:
    return " ".join(record.config.get("observe", {}).get("tags", ()))


def _score(record: RunRecord) -> str:
    """Return the first test score or, if there is none, the first validation score."""
    scores = record.main_scores
    name = next((name for name in scores if name.startswith("test/")), next(iter(scores), None))
    return "-" if name is None else f"{name} {scores[name].value:.4g}"
