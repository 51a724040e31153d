"""`normlab compare`: finished runs side by side, a row an experiment, computed from records."""

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from string import ascii_lowercase

from normlab.commands._bootstrap import show_bootstrap
from normlab.commands._runs import given_twice, read_places
from normlab.commands._terminal import complain, print_markdown, print_table
from normlab.metrics.statistics import accuracy_interval
from normlab.records.aggregate import Cell, Summary, group
from normlab.records.arithmetic import arithmetic
from normlab.records.code import code_differences
from normlab.records.fingerprint import varying
from normlab.records.labels import corpus_label
from normlab.records.record import RunRecord
from normlab.records.selection import select
from normlab.records.store import without_collection

HELP = "show finished runs side by side: score, spread, spikes, outcome, speed"

_EXAMPLES = """examples:
  normlab compare                                  all runs below runs/
  normlab compare --where task=toy --where norm=bn
  normlab compare runs/toy-ln-pre-* runs/toy-bn-pre-*
  normlab compare --score test/chrf --score valid/loss
  normlab compare --where task=mlm --score test/mlm_accuracy --score valid/steps_to/mlm_accuracy_0.2
  normlab compare runs/iwslt-ln-post-* runs/iwslt-bn-post-* --bootstrap

A row averages the seeds that finished; `outcome` tells of the others. norm=bn+ln is bn in the
encoder and ln in the decoder.

--bootstrap asks whether a difference in BLEU would hold on other sentences, by sacreBLEU's paired
bootstrap (Koehn 2004) on what two experiments translated, the first being the baseline. The p value
of a study's table is another: it asks whether the difference would hold with other seeds.
"""
# Shown where a run has them and no other score is asked for.
_SCORES = (
    "test/bleu",
    "test/mlm_accuracy",
    "test/nsp_accuracy",
    "test/accuracy",
    "test/bits_per_character",
)
_ALWAYS = "valid/loss"
_SPIKES = "stability/spikes/count"
_SHOWN = ("norm", "placement", "task", "task/corpus")
_NAMED = ("norm", "placement", "task", "corpus", "batch")


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
    result.add_argument(
        "--bootstrap",
        action="store_true",
        help="test BLEU of two experiments on the test's sentences, seed by seed (translation)",
    )
    result.add_argument(
        "--data-dir",
        type=Path,
        metavar="FOLDER",
        help="with --bootstrap: where the text of the test lies now, if it was moved",
    )
    result.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    result.add_argument("--runs-dir", type=Path, default=Path("runs"), help="default: runs")
    return result


def main(argv: list[str]) -> int:
    """Print the table; 1 where a record is damaged or runs cannot be averaged, which is said.

    Raises `ValueError` for a run, key or score that does not exist.
    """
    arguments = parser().parse_args(argv)
    if arguments.bootstrap and arguments.score:
        raise ValueError("--bootstrap compares test/bleu: leave out --score")
    if arguments.data_dir is not None and not arguments.bootstrap:
        raise ValueError("--data-dir is for --bootstrap, which needs the references of the test")
    return _compare(arguments)


@without_collection()
def _compare(arguments: argparse.Namespace) -> int:
    runs, problems = read_places(arguments.runs or [arguments.runs_dir])
    folders = {id(record): folder for folder, record in runs}
    records = select([record for _, record in runs], _conditions(arguments.where))
    if arguments.bootstrap and records:
        show_bootstrap(
            {folders[id(record)]: record for record in records},
            data_dir=arguments.data_dir,
            markdown=arguments.markdown,
        )
    elif records:
        problems += _show(records, folders, arguments)
    elif not problems:
        place = ", ".join(str(path) for path in arguments.runs or [arguments.runs_dir])
        which = " that fits" if arguments.where and runs else ""
        problems.append(f"no run{which} below {place}; `normlab train` makes one")
    for problem in problems:
        complain(problem)
    return 1 if problems else 0


def _show(
    records: Sequence[RunRecord], folders: Mapping[int, Path], arguments: argparse.Namespace
) -> list[str]:
    """Print the table; return why runs of others could not be averaged."""
    if arguments.score:
        _check_scores(arguments.score, records)
    problems: list[str] = []
    cells: list[Cell] = []
    rows: list[list[str]] = []
    scores = arguments.score or _usual(records)
    for members in group(records).values():
        if (twice := given_twice(members, folders)) is not None:
            problems.append(twice)
            continue
        try:
            cell = Cell.of(members)
            rows.append(_row(cell, scores))
        except ValueError as error:
            problems.append(str(error))
        else:
            cells.append(cell)
    if rows:
        columns = [*_NAMED, "seeds", *scores]
        columns += ["spikes", "outcome", _speed(cells)]
        show = print_markdown if arguments.markdown else print_table
        _print(columns, rows, cells, scores, show)
    return problems


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
            whole = [score for score in known if score.count("/") == 1]
            near = get_close_matches(name, known, n=5) or sorted(whole)
            raise ValueError(
                f"--score {name}: no run has this score; there are {', '.join(near) or 'none'}"
                + (f" and {len(known) - len(near)} more" if len(known) > len(near) else "")
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
        corpus_label(cell.config) or "-",
        _batch(cell),
        " ".join(str(seed) for seed in cell.seeds),
        *(_figure(cell.score(name), digits=_digits(name)) + _bounds(cell, name) for name in scores),
        _figure(cell.stability(_SPIKES), digits=1, spread=False),
        cell.outcome,
        _figure(cell.tokens_per_second(), digits=0, spread=False),
    ]


def _bounds(cell: Cell, name: str) -> str:
    """Return Wilson's interval of one run's accuracy; several have a spread over seeds."""
    found = cell.records[0].figure(name) if len(cell.records) == 1 else None
    bounds = accuracy_interval(name, found.value, found.n) if found is not None else None
    return f" [{', '.join(f'{bound:.3f}' for bound in bounds)}]" if bounds else ""


def _speed(cells: Sequence[Cell]) -> str:
    """Name the column of speeds by what the runs count."""
    return f"{' or '.join(sorted({record.unit for c in cells for record in c.records}))}/s"


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
    changed = code_differences(record.environment for cell in cells for record in cell.records)
    if changed is not None:
        files = f": {', '.join(changed)}" if changed else ""
        notes.append(f"these runs were made by different states of the code{files}")
    kinds = {" ".join(arithmetic(record)) for cell in cells for record in cell.records}
    if len(kinds) > 1:
        notes.append(f"computed in unlike arithmetic: {', '.join(sorted(kinds))}")
    for name in scores:
        signatures = sorted({cell.signature(name) or "" for cell in cells} - {""})
        if len(signatures) < 2:
            notes += [f"{name}: {signature}" for signature in signatures]
            continue
        # Figures scored in different ways carry a letter each: they do not compare.
        names = (a + b for a in ("", *ascii_lowercase) for b in ascii_lowercase)
        letters = dict(zip(signatures, names, strict=False))
        notes += [f"{name} ({letters[signature]}): {signature}" for signature in signatures]
        for row, cell in zip(rows, cells, strict=True):
            if signature := cell.signature(name):
                row[columns.index(name)] += f" ({letters[signature]})"
    at = columns.index("corpus")
    corpora = {row[at] for row in rows}
    if len(corpora) == 1:  # a column is for what varies
        columns, *rows = ([*row[:at], *row[at + 1 :]] for row in (columns, *rows))
        notes += [f"corpus: {corpus}" for corpus in corpora - {"-"}]
    numeric = [*scores, "spikes", _speed(cells)]
    show(columns, rows, notes=notes, numeric=numeric)


def _differences(rows: Sequence[Sequence[str]], cells: Sequence[Cell]) -> list[str]:
    """Say for rows that look alike in what they are named by what sets them apart."""
    alike: dict[tuple[str, ...], list[Cell]] = {}
    for row, cell in zip(rows, cells, strict=True):
        alike.setdefault(tuple(row[: len(_NAMED)]), []).append(cell)
    said = {
        cell.fingerprint: text
        for members in alike.values()
        for cell, text in zip(members, _apart(members), strict=True)
    }
    return [said[cell.fingerprint] for cell in cells]


def _apart(cells: Sequence[Cell]) -> list[str]:
    groups = sorted({key for cell in cells for key in cell.config.get("choices", {})})
    named = [
        name
        for name in groups
        if name not in _SHOWN and len({cell.choice(name) for cell in cells}) > 1
    ]
    # Where the option differs its name says more than all the values below it.
    return [
        " ".join(
            [
                *(f"{name}={cell.choice(name)}" for name in named),
                *(f"{k}={value}" for k, value in values.items() if k.split(".")[0] not in named),
            ]
        )
        for cell, values in zip(cells, varying([cell.parts for cell in cells]), strict=True)
    ]
