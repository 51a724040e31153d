"""What `normlab compare RUN --samples` prints: translations of runs side by side."""

import argparse
import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._rows import named_rows
from normlab.commands._terminal import folded, print_note
from normlab.records.aggregate import Cell
from normlab.records.record import RunRecord
from normlab.records.text import one_line

if TYPE_CHECKING:
    from normlab.reports.samples import Choice, Sample

_COUNT = 5
_LEFT_OUT = 3  # runs that are named


def add_samples(parser: argparse.ArgumentParser) -> None:
    """Add the options of `--samples`."""
    group = parser.add_argument_group("samples of translations")
    group.add_argument(
        "--samples",
        nargs="?",
        const=_COUNT,
        type=int,
        metavar="N",
        help=f"show N sentences of the test, and what each run made of them; default: {_COUNT}",
    )
    chosen = group.add_mutually_exclusive_group()
    chosen.add_argument("--worst", action="store_true", help="those of the lowest chrF")
    chosen.add_argument("--differ", action="store_true", help="those where the runs differ most")
    chosen.add_argument("--draw", type=int, metavar="SEED", help="draw others; default: 1")
    group.add_argument(
        "--split", default="test", metavar="NAME", help="a test set of the corpus; default: test"
    )
    group.add_argument("--json", action="store_true", help="print the samples as JSON")


def show_samples(runs: Sequence[tuple[Path, RunRecord]], arguments: argparse.Namespace) -> None:
    """Print sentences, their references and what each run made of them.

    Raises `ValueError` for runs without translations, and for runs of different text.
    """
    from normlab.reports.samples import choose

    if arguments.samples < 1:
        raise ValueError(f"--samples {arguments.samples}: at least 1")
    by: Choice = "worst" if arguments.worst else "differ" if arguments.differ else "drawn"
    runs, left_out = _with_outputs(runs, arguments.split)
    outputs = _outputs(runs, arguments.split)
    if by == "differ" and len(outputs) < 2:
        raise ValueError("--differ compares runs, and there is one: name two or more")
    seed = 1 if arguments.draw is None else arguments.draw
    text = _text(runs, arguments)
    _check_lengths(outputs, len(text[1]))
    samples = choose(text, outputs, count=arguments.samples, by=by, seed=seed)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(each) for each in samples], indent=1))
        return
    for each in samples:
        _print(each)
    print_note(_how(by, len(samples), len(text[1]), seed))
    for reason in left_out[:_LEFT_OUT]:
        print_note(f"left out: {reason}")
    if len(left_out) > _LEFT_OUT:
        print_note(f"left out: {len(left_out) - _LEFT_OUT} more")


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
        "drawn": f"drawn by --draw {seed}",
        "worst": "those of the lowest chrF",
        "differ": "those where the runs' chrF is furthest apart",
    }[by]
    return f"{shown} of {total} sentences, {chosen}; the number is the chrF of the sentence"
