"""`normlab compare`: finished runs side by side, a row an experiment, computed from records."""

import argparse
import math
import string
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from normlab.commands._terminal import complain, print_markdown, print_table
from normlab.records.aggregate import Cell, Summary, group
from normlab.records.fingerprint import diff
from normlab.records.record import RunRecord
from normlab.records.store import RECORD_FILE, RunStore, read_record, select

HELP = "show finished runs side by side: score, spread, spikes, outcome, speed"

_EXAMPLES = """examples:
  normlab compare                                  all runs below runs/
  normlab compare --where task=toy --where norm=bn
  normlab compare runs/toy-ln-pre-* runs/toy-bn-pre-*
  normlab compare --score test/chrf --score valid/loss
  normlab compare --where task=mlm --score test/mlm_accuracy --score valid/steps_to/mlm_accuracy_0.2

A row averages the seeds that finished; `outcome` tells of the others. norm=bn+ln is bn in the
encoder and ln in the decoder.
"""
# Shown where a run has them and no other score is asked for.
_SCORES = ("test/bleu", "test/mlm_accuracy", "test/nsp_accuracy", "test/bits_per_character")
_ALWAYS = "valid/loss"
_SPIKES = "stability/spikes/count"
_SHOWN = ("norm", "placement", "task")


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab compare",
        description="Show finished runs side by side.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUN",
        help="a run folder, a folder of runs or a record.json; default: all of --runs-dir",
    )
    result.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with this option, status, seed or config value; may be repeated",
    )
    result.add_argument(
        "--score",
        action="append",
        metavar="NAME",
        help="a column for this score; may be repeated; default: the first ones of the task",
    )
    result.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    result.add_argument("--runs-dir", type=Path, default=Path("runs"), help="default: runs")
    return result


def main(argv: list[str]) -> int:
    """Print the table; 1 where a record is damaged or runs cannot be averaged, which is said.

    Raises `ValueError` for a run, key or score that does not exist.
    """
    arguments = parser().parse_args(argv)
    found, problems = _read(arguments.runs or [arguments.runs_dir])
    records = select(found, _conditions(arguments.where))
    if arguments.score:
        _check_scores(arguments.score, records)
    cells: list[Cell] = []
    rows: list[list[str]] = []
    scores = arguments.score or _usual(records)
    for members in group(records).values():
        try:
            cell = Cell.of(members)
            rows.append(_row(cell, scores))
        except ValueError as error:
            problems.append(str(error))
        else:
            cells.append(cell)
    if rows:
        columns = ["norm", "placement", "task", "batch", "seeds", *scores]
        columns += ["spikes", "outcome", "tokens/s"]
        show = print_markdown if arguments.markdown else print_table
        _print(columns, rows, cells, scores, show)
    elif not problems:
        place = ", ".join(str(path) for path in arguments.runs or [arguments.runs_dir])
        which = " that fits" if arguments.where and found else ""
        problems.append(f"no run{which} below {place}; `normlab train` makes one")
    for problem in problems:
        complain(problem)
    return 1 if problems else 0


def _read(places: Iterable[Path]) -> tuple[list[RunRecord], list[str]]:
    """Read every record at or below the places once, and say which are damaged."""
    records: dict[Path, RunRecord] = {}
    problems: list[str] = []
    for place in places:
        if place.name == RECORD_FILE or (place / RECORD_FILE).is_file():
            path = place if place.name == RECORD_FILE else place / RECORD_FILE
            records[path.resolve()] = read_record(path)
            continue
        store = RunStore(place)
        entries = store.entries()
        problems += [message for _, message in store.damaged]
        records |= {(folder / RECORD_FILE).resolve(): record for folder, record in entries}
    return list(records.values()), problems


def _conditions(where: Iterable[str]) -> dict[str, str]:
    conditions: dict[str, str] = {}
    for text in where:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ValueError(f"--where {text}: expected KEY=VALUE, such as --where norm=bn")
        conditions[key] = value
    return conditions


def _check_scores(wanted: Iterable[str], records: Sequence[RunRecord]) -> None:
    known = {name for record in records for name in record.scores}
    for name in wanted:
        if name not in known:
            raise ValueError(
                f"--score {name}: no run has this score; "
                f"allowed: {', '.join(sorted(known)) or 'none'}"
            )


def _usual(records: Sequence[RunRecord]) -> list[str]:
    """Return the scores that any of the runs has of those that their tasks are judged by."""
    there = [name for name in _SCORES if any(name in record.scores for record in records)]
    return [*there, _ALWAYS]


def _row(cell: Cell, scores: Iterable[str]) -> list[str]:
    return [
        cell.norm,
        cell.choice("placement") or "-",
        cell.choice("task") or "-",
        _batch(cell),
        " ".join(str(seed) for seed in cell.seeds),
        *(_figure(cell.score(name), digits=_digits(name)) for name in scores),
        _figure(cell.stability(_SPIKES), digits=1, spread=False),
        cell.outcome,
        _figure(cell.tokens_per_second(), digits=0, spread=False),
    ]


def _batch(cell: Cell) -> str:
    size, tokens = cell.config.get("batch_size"), cell.config.get("max_tokens")
    batch = str(size) if size is not None else f"{tokens} tokens" if tokens is not None else "-"
    accumulate = cell.config.get("accumulate") or 1
    return batch if accumulate == 1 else f"{accumulate} x {batch}"


def _digits(score: str) -> int:
    """BLEU and chrF are read to two digits, losses, accuracies (0 to 1) and bits to three."""
    if "_to/" in score:  # steps and tokens
        return 0
    return 3 if score.endswith("loss") or "accuracy" in score or "bits" in score else 2


def _figure(summary: Summary | None, *, digits: int, spread: bool = True) -> str:
    if summary is None:
        return "-"
    if math.isinf(summary.mean):
        return "not reached" if summary.n == 1 else "not by all"
    mean = f"{summary.mean:.{digits}f}"
    return mean if summary.sd is None or not spread else f"{mean} +- {summary.sd:.{digits}f}"


def _print(
    columns: list[str],
    rows: list[list[str]],
    cells: Sequence[Cell],
    scores: Sequence[str],
    show: Callable[..., None],
) -> None:
    also = _differences(rows, cells)
    if any(also):
        columns.append("also")
        rows = [[*row, text] for row, text in zip(rows, also, strict=True)]
    scales = sorted({cell.choice("scale") or "none" for cell in cells})
    notes = [f"scale: {', '.join(scales)}; mean +- standard deviation over finished seeds"]
    codes = {record.environment.get("code") for cell in cells for record in cell.records}
    if len(codes) > 1:
        notes.append(f"these runs were made by {len(codes)} different states of the code")
    for name in scores:
        signatures = sorted({cell.signature(name) or "" for cell in cells} - {""})
        if len(signatures) < 2:
            notes += [f"{name}: {signature}" for signature in signatures]
            continue
        # Figures scored in different ways carry a letter each: they do not compare.
        letters = dict(zip(signatures, string.ascii_lowercase, strict=False))
        notes += [f"{name} ({letters[signature]}): {signature}" for signature in signatures]
        for row, cell in zip(rows, cells, strict=True):
            if signature := cell.signature(name):
                row[columns.index(name)] += f" ({letters[signature]})"
    numeric = [*scores, "spikes", "tokens/s"]
    show(columns, rows, notes=notes, numeric=numeric)


def _differences(rows: Sequence[Sequence[str]], cells: Sequence[Cell]) -> list[str]:
    """Say for rows that look alike in norm, placement, task and batch what sets them apart."""
    alike: dict[tuple[str, ...], list[Cell]] = {}
    for row, cell in zip(rows, cells, strict=True):
        alike.setdefault(tuple(row[:4]), []).append(cell)
    return [_apart(cell, alike[tuple(row[:4])]) for row, cell in zip(rows, cells, strict=True)]


def _apart(cell: Cell, others: Sequence[Cell]) -> str:
    groups = {key for other in others for key in other.config.get("choices", {})}
    named = sorted(
        name
        for name in groups
        if name not in _SHOWN and len({other.choice(name) for other in others}) > 1
    )
    # Where the option differs its name says more than all the values below it.
    values = {
        key: own
        for other in others
        for key, (own, _) in sorted(diff(cell.config, other.config).items())
        if key.split(".")[0] not in named
    }
    options = [f"{name}={cell.choice(name)}" for name in named]
    return " ".join([*options, *(f"{key}={value}" for key, value in values.items())])
