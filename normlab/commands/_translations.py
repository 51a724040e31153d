"""Translations of runs side by side: `normlab compare --samples` and `--bootstrap`."""

import argparse
import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._comparison import choose_baseline, named_rows
from normlab.commands._terminal import folded, print_markdown, print_note, print_table
from normlab.records.aggregate import Cell, group
from normlab.records.labels import one_line
from normlab.records.record import RunRecord
from normlab.reports.comparison import not_learned
from normlab.reports.translations import SPLIT, Text, checksums

if TYPE_CHECKING:
    from normlab.reports.translations import Choice, Compared, Sample

SAMPLES = 1000  # of a bootstrap
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
    from normlab.reports.translations import choose

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
    from normlab.records.store import hypotheses_splits

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
    from normlab.records.store import read_hypotheses

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


def show_bootstrap(
    runs: Mapping[Path, RunRecord], *, baseline: str | None, data_dir: Path | None, markdown: bool
) -> None:
    """Compare two experiments on the sentences of their test, and print one row per seed.

    A difference is the other row minus the baseline, as `compare` prints it. Raises ValueError
    where there are not two, or with the reason why they do not compare.
    """
    from normlab.reports import translations

    cells, sides = _sides(runs, baseline)
    (first, without), (second, also_without) = (translations.read_scored(side) for side in sides)
    translations.check_alike([*first.values(), *second.values()])
    _, references = parallel_text(next(iter(first.values())).record, translations.SPLIT, data_dir)
    found = translations.bootstrap(first, second, references, samples=SAMPLES)
    norms = [cell.norm for cell in cells]
    names = norms if norms[0] != norms[1] else ["baseline", "other"]
    labels = [cell.records[0].run_id.removesuffix(f"-seed{cell.seeds[0]}") for cell in cells]
    columns = ["seed", *names, "difference", "p"]
    rows = [_row(str(seed), test) for seed, test in found.seeds.items()]
    if len(rows) > 1:
        rows.append(_row("all", found.together))
    untrained = [
        f"NOT CLEAR OF THE UNTRAINED BASELINE: {name}: {low}; its differences say nothing"
        for name, cell in zip(names, cells, strict=True)
        if (low := not_learned(cell, translations.SCORE)) is not None
    ]
    show = print_markdown if markdown else print_table
    notes = [
        *untrained,
        *found.notes,
        f"difference: {names[1]} minus the baseline {names[0]}",
        *(f"{name}: {label}" for name, label in zip(names, labels, strict=True)),
        *_notes(found, len(references)),
        *without,
        *also_without,
    ]
    show(columns, rows, notes=notes, numeric=columns)


def _sides(
    runs: Mapping[Path, RunRecord], baseline: str | None
) -> tuple[list[Cell], list[dict[Path, RunRecord]]]:
    """Return the two experiments and their runs by folder, the baseline first."""
    folders = {id(record): folder for folder, record in runs.items()}
    groups = list(group(runs.values()).values())
    if len(groups) != 2:
        ids = (own[0].run_id.removesuffix(f"-seed{own[0].seed}") for own in groups)
        labels = ", ".join(sorted(ids)) or "none"
        raise ValueError(
            f"--bootstrap compares two experiments, and there are {len(groups)}: {labels}; name "
            "two: normlab compare runs/A runs/B --bootstrap"
        )
    rows = named_rows([Cell.of(members) for members in groups])
    first = choose_baseline(rows, "test/bleu", baseline)
    cells = sorted((row.cell for row in rows), key=lambda cell: cell is not first.cell)
    return cells, [{folders[id(record)]: record for record in cell.records} for cell in cells]


def _row(name: str, test: Any) -> list[str]:
    scores = (test.baseline, test.other)
    gap = f"{test.other - test.baseline:+.2f}"
    return [name, *(f"{score:.2f}" for score in scores), gap, f"{test.p:.4f}"]


def _notes(found: "Compared", sentences: int) -> list[str]:
    from normlab.metrics.spread import p_value, paired_interval

    notes = [
        f"test/bleu; p: sacreBLEU's paired bootstrap, {SAMPLES} samples of the {sentences} "
        f"sentences ({found.together.signature})"
    ]
    if len(found.seeds) > 1:
        ones, others = (
            {seed: getattr(test, side) for seed, test in found.seeds.items()}
            for side in ("other", "baseline")
        )
        gap = paired_interval(ones, others)
        notes += [
            "all: the counts of a sentence are summed over the seeds",
            f"over seeds: {gap.mean:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}], p {p_value(gap):.4f} "
            "(t test); that asks for other seeds, the bootstrap for other sentences",
        ]
    return notes


def parallel_text(
    record: RunRecord, split: str, data_dir: Path | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Return sources and plain references of a split, in its order.

    Raises ValueError for a task that does not translate, for a split that the corpus does not have,
    and where the text is not there or not the one of the record: `data_dir` says where it lies now.
    """
    from normlab.config.compose import from_dict, to_dict
    from normlab.tasks.translation import Translation
    from normlab.train.build import build_task

    changes = [] if data_dir is None else [f"data_dir={data_dir}"]
    task = build_task(to_dict(from_dict(record.config, changes)))
    if not isinstance(task, Translation):
        raise ValueError(
            f"{record.run_id} is a run of the task {record.choice('task')}, which does not "
            "translate: it has no sources and references"
        )
    try:
        data = task.data
    except ValueError as error:
        raise ValueError(
            f"the text of the test cannot be had: {error} (--data-dir says where)"
        ) from None
    if split not in data.texts:
        raise ValueError(f"no split {split!r}: the corpus has {', '.join(data.texts)}")
    if data.description["checksums"][split] != checksums(record, split):
        raise ValueError(
            f"{record.run_id} was tested on other text than data_dir="
            f"{data_dir or record.config.get('data_dir')} holds now: --data-dir says where it lies"
        )
    text = data.texts[split]
    return text.source, data.plain(text.target)


class TextsAtHand:
    """The texts of tests as `parallel_text` returns them, read once each and without a network."""

    def __init__(self) -> None:
        self._kept: dict[str, Text | str] = {}

    def __call__(self, record: RunRecord) -> Text:
        """Return sources and references; ValueError where they are not on this machine."""
        key = json.dumps(checksums(record, SPLIT), sort_keys=True)
        if key not in self._kept:
            self._kept[key] = self._read(record)
        found = self._kept[key]
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _read(self, record: RunRecord) -> Text | str:
        from normlab.data.cache import offline

        try:
            with offline():
                return parallel_text(record, SPLIT, None)
        except (ValueError, OSError) as error:
            return str(error)
