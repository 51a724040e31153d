"""`normlab samples RUN [RUN ...]`: what finished runs made of sentences of their test."""

import argparse
import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._rows import named_rows
from normlab.commands._runs import conditions, none_below, read_places
from normlab.commands._terminal import complain, folded, print_note
from normlab.records.aggregate import Cell
from normlab.records.record import RunRecord
from normlab.records.selection import select
from normlab.records.store import without_collection
from normlab.records.text import one_line

if TYPE_CHECKING:
    from normlab.reports.samples import Choice, Sample

HELP = "show source, reference and translations of finished runs side by side"

_EXAMPLES = """examples:
  normlab samples runs/toy-ln-pre-* runs/toy-bn-pre-*
  normlab samples runs --where seed=1 --where task=toy --count 10
  normlab samples RUN --seed 2           other sentences
  normlab samples RUN RUN --differ       where the runs differ most
  normlab samples RUN --worst            those of the lowest chrF
  normlab samples RUN --split test_2017  another test set of the corpus

The number before a translation is its chrF (0 to 100), of this sentence alone.
A run is known by its norm, and by what else sets it apart from the others.
`normlab compare A B --bootstrap` says whether a difference holds over the whole
test.
"""
_COUNT = 5
_LEFT_OUT = 3  # runs that are named


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab samples",
        description="Show source, reference and translations of finished runs side by side.",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument(
        "runs",
        nargs="+",
        type=as_path,
        metavar="RUN",
        help="a run folder, a folder of runs, or a published one",
    )
    result.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with this option, seed or config value; may be repeated",
    )
    result.add_argument(
        "--count", type=int, default=_COUNT, metavar="N", help=f"how many; default: {_COUNT}"
    )
    result.add_argument("--seed", type=int, metavar="N", help="draw others; default: 1")
    chosen = result.add_mutually_exclusive_group()
    chosen.add_argument("--worst", action="store_true", help="those of the lowest chrF")
    chosen.add_argument("--differ", action="store_true", help="those where the runs differ most")
    result.add_argument(
        "--split", default="test", metavar="NAME", help="a test set of the corpus; default: test"
    )
    result.add_argument(
        "--data-dir",
        type=as_path,
        metavar="FOLDER",
        help="where the text lies now, if it was moved",
    )
    result.add_argument("--json", action="store_true", help="print JSON")
    return result


def main(argv: list[str]) -> int:
    """Print the sentences; 1 where a record is damaged, which is said.

    Raises `ValueError` for runs without translations, and for runs of unlike text.
    """
    arguments = parser().parse_args(argv)
    if arguments.count < 1:
        raise ValueError(f"--count {arguments.count}: at least 1")
    by: Choice = "worst" if arguments.worst else "differ" if arguments.differ else "drawn"
    if arguments.seed is not None and by != "drawn":
        raise ValueError(f"--{by} draws nothing: leave out --seed")
    return _samples(arguments, by)


@without_collection()
def _samples(arguments: argparse.Namespace, by: "Choice") -> int:
    from normlab.reports.samples import choose

    found, problems = read_places(arguments.runs)
    chosen = {id(r) for r in select([r for _, r in found], conditions(arguments.where))}
    runs = [(folder, record) for folder, record in found if id(record) in chosen]
    if not (runs or problems):
        which = " that fits" if found else ""
        problems = [none_below(arguments.runs, which)]
    for problem in problems:
        complain(problem)
    if not runs:
        return 1
    runs, left_out = _with_outputs(runs, arguments.split)
    outputs = _outputs(runs, arguments.split)
    if by == "differ" and len(outputs) < 2:
        raise ValueError("--differ compares runs, and there is one: name two or more")
    seed = 1 if arguments.seed is None else arguments.seed
    text = _text(runs, arguments)
    _check_lengths(outputs, len(text[1]))
    samples = choose(text, outputs, count=arguments.count, by=by, seed=seed)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(each) for each in samples], indent=1))
    else:
        for each in samples:
            _print(each)
        print_note(_how(by, len(samples), len(text[1]), seed))
        for reason in left_out[:_LEFT_OUT]:
            print_note(f"left out: {reason}")
        if len(left_out) > _LEFT_OUT:
            print_note(f"left out: {len(left_out) - _LEFT_OUT} more")
    return 1 if problems else 0


def _with_outputs(
    runs: Sequence[tuple[Path, RunRecord]], split: str
) -> tuple[list[tuple[Path, RunRecord]], list[str]]:
    """Return the runs that left translations, and why the others are left out.

    Raises ValueError with the first reason where no run has any.
    """
    from normlab.records.hypotheses import hypotheses_splits

    splits = [hypotheses_splits(folder) for folder, _ in runs]
    found = [run for run, there in zip(runs, splits, strict=True) if split in there]
    reasons = [
        f"{folder}: {_without(folder, record, split, there)}"
        for (folder, record), there in zip(runs, splits, strict=True)
        if split not in there
    ]
    if not found:
        raise ValueError(reasons[0])
    return found, reasons


def _outputs(runs: Sequence[tuple[Path, RunRecord]], split: str) -> dict[str, Sequence[str]]:
    """Return by the labels of the runs what they translated."""
    from normlab.records.hypotheses import read_hypotheses

    labels = _labels([record for _, record in runs])
    folders = (folder for folder, _ in runs)
    return {
        label: read_hypotheses(folder, split)[1]
        for label, folder in zip(labels, folders, strict=True)
    }


def _without(folder: Path, record: RunRecord, split: str, splits: Sequence[str]) -> str:
    """Say why a run has no translations, and what to do."""
    if splits:
        return f"no translations of the split {split!r}; there are those of {', '.join(splits)}"
    if not any(name.startswith("test/bleu") for name in record.scores):
        ended = "" if record.finished else f", which ended as {record.outcome.status}"
        return f"a run of the task {record.choice('task')}{ended}: it left no translations to show"
    missing = "no hypotheses.txt there, plain or gzipped"
    if not (folder / "checkpoints").is_dir():
        return f"{missing}, and no weights to translate with again"
    again = f"normlab eval {folder} --outputs {folder / 'hypotheses.txt'}"
    return f"{missing}; write it again with {again}"


def _labels(records: Sequence[RunRecord]) -> list[str]:
    """Name runs as `compare` names rows, by their seeds too where these differ."""
    rows = named_rows(list({r.fingerprint: Cell.of([r]) for r in records}.values()))
    names = {row.cell.fingerprint: row.label for row in rows}
    several = len(records) > len(rows)
    labels = [names[r.fingerprint] + (f" seed{r.seed}" if several else "") for r in records]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"the run {label} is given twice, in several folders: name each once")
    return labels


def _text(
    runs: Sequence[tuple[Path, RunRecord]], arguments: argparse.Namespace
) -> tuple[Sequence[str], Sequence[str]]:
    """Return sources and references, which all runs must have been tested on."""
    from normlab.commands._texts import parallel_text
    from normlab.reports.samples import checksums

    first, split = runs[0][1], arguments.split
    for _, record in runs[1:]:
        if checksums(record, split) != checksums(first, split):
            raise ValueError(
                f"{first.run_id} and {record.run_id} were tested on other texts: name runs of one, "
                "such as with --where task=toy"
            )
    return parallel_text(first, split, arguments.data_dir)


def _check_lengths(outputs: Mapping[str, Sequence[str]], sentences: int) -> None:
    for label, lines in outputs.items():
        if len(lines) != sentences:
            raise ValueError(
                f"{label}: {len(lines)} translations of {sentences} sentences; write them again "
                "with normlab eval RUN --outputs RUN/hypotheses.txt"
            )


def _print(sample: "Sample") -> None:
    """Print a sentence: a line or more for its source, its reference and each translation."""
    print(f"sentence {sample.line}")
    wide = max(len("reference"), *map(len, sample.outputs))
    lines = [("source", "", sample.source or ""), ("reference", "", sample.reference or "")]
    lines += [(run, f"{sample.chrf[run]:.1f}", text) for run, text in sample.outputs.items()]
    room = shutil.get_terminal_size().columns
    for name, chrf, said in lines:
        head = f"  {name:<{wide}}  {chrf:>5}  "
        width = max(room - len(head), 20)
        body = folded(one_line(said).strip() or "(nothing)", width, whole_words=False)
        print(f"{head}{body[0]}")
        for line in body[1:]:
            print(f"{' ' * len(head)}{line}")
    print()


def _how(by: "Choice", shown: int, total: int, seed: int) -> str:
    chosen = {
        "drawn": f"drawn by --seed {seed}",
        "worst": "those of the lowest chrF",
        "differ": "those where the runs' chrF is furthest apart",
    }[by]
    return f"{shown} of {total} sentences, {chosen}; the number is the chrF of the sentence"
