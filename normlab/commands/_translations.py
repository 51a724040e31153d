"""Translations of runs next to each other: `normlab compare --samples` and `--bootstrap`."""

import argparse
import shutil
from functools import partial
from pathlib import Path

from normlab.commands._terminal import folded, print_prose, print_table
from normlab.metrics.spread import p_value, paired_interval
from normlab.records.labels import in_prose, one_line
from normlab.records.pairs import Cell
from normlab.records.record import RunRecord
from normlab.reports.comparison import not_alike
from normlab.reports.gather import Arranged, by_setting
from normlab.reports.table import pipes
from normlab.reports.translations import SPLIT, Text, bootstrap, checksums, side_by_side

_SAMPLES = 1000  # bootstrap samples


def show_samples(runs: Arranged, arguments: argparse.Namespace) -> None:
    """Print sentences, their references and the translations by each row's first seed.

    Raises `ValueError` if no run left translations.
    """
    if arguments.samples < 1:
        raise ValueError(f"--samples {arguments.samples}: at least 1")
    text_of = partial(text_of_test, data_dir=arguments.data_dir)
    found = side_by_side(runs.runs, text_of, count=arguments.samples)
    if found is None:
        path = f"{runs.runs[0].folder}/hypotheses.txt"
        raise ValueError(
            f"{path}: no such file, nor in another run; a run of translation writes it again with "
            f"normlab eval {runs.runs[0].folder} --outputs {path}"
        )
    room = shutil.get_terminal_size().columns
    for number, texts in found.sentences.items():
        wide = max(len(each.name) for each in texts)
        print(f"sentence {number}")
        for each in texts:
            chrf = "" if each.chrf is None else f"{each.chrf:.1f}"
            head = f"  {each.name:<{wide}}  {chrf:>5}  "
            said, width = one_line(each.text).strip() or "(nothing)", max(room - len(head), 20)
            first, *rest = folded(said, width)
            print("\n".join([head + first, *(" " * len(head) + line for line in rest)]))
        print()
    shown = f"{len(found.sentences)} of the {found.total:,} sentences of {found.data}"
    print_prose(f"{shown}, drawn at random; the number is the chrF of the sentence")
    if found.missing:
        print_prose(f"without sources and references: {found.missing}")
    for reason in found.left_out:
        print_prose(f"left out: {reason}")


def show_bootstrap(runs: Arranged, arguments: argparse.Namespace) -> None:
    """Compare two experiments on the sentences of their test, printing one row per seed.

    A difference is the other row minus the baseline. Raises ValueError unless there are exactly two
    experiments, and with the reason if they may not be compared.
    """
    if arguments.score:
        raise ValueError("--bootstrap compares test/bleu: leave out --score")
    sides = {" ".join(place).strip(): own for place, own in by_setting(runs.runs).items()}
    if len(sides) != 2:
        raise ValueError(
            f"--bootstrap compares two experiments, and there are {len(sides)}: "
            f"{', '.join(sides)}; name two: normlab compare runs/A runs/B --bootstrap"
        )
    names = [*sides]
    first, second = sides.values()
    text_of = partial(text_of_test, data_dir=arguments.data_dir)
    tests = bootstrap(first, second, text_of, samples=_SAMPLES)
    columns = ["seed", *names, "difference", "p"]
    rows = [
        [seed, f"{t.baseline:.2f}", f"{t.other:.2f}", f"{t.other - t.baseline:+.2f}", f"{t.p:.4f}"]
        for seed, t in tests.items()
    ]
    cells = {name: Cell.of(r.record for r in own if r.record) for name, own in sides.items()}
    signature = [*tests.values()][-1].signature
    notes = [
        f"difference: {names[1]} minus the baseline {names[0]}",
        f"test/bleu; p: sacreBLEU's paired bootstrap, {_SAMPLES} samples of the sentences "
        f"({signature})",
        *not_alike(cells),
    ]
    if "all" in tests:
        seeds = {int(seed): test for seed, test in tests.items() if seed != "all"}
        baselines = {seed: test.baseline for seed, test in seeds.items()}
        gap = paired_interval({seed: test.other for seed, test in seeds.items()}, baselines)
        notes += [
            "all: the counts of a sentence are summed over the seeds",
            f"over seeds: {gap.mean:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}], p {p_value(gap):.4f} "
            "(t test); that asks for other seeds, the bootstrap for other sentences",
        ]
    if arguments.markdown:
        print("\n".join(pipes(columns, rows, words=0, notes=map(in_prose, notes))))
    else:
        print_table(columns, rows, notes=notes, numeric=columns)


def text_of_test(record: RunRecord, data_dir: Path | None = None) -> Text:
    """Return the sources and plain references of a run's test, in order, without a network.

    They are read from `data_dir`, or from where the run had them. Raises ValueError for a task that
    does not translate, and if the text is missing or differs from the record's.
    """
    from normlab.config.compose import from_dict, to_dict
    from normlab.data.cache import offline
    from normlab.tasks.translation import Translation
    from normlab.train.build import build_task

    changes = [] if data_dir is None else [f"data_dir={data_dir}"]
    with offline():
        task = build_task(to_dict(from_dict(record.config, changes)))
        if not isinstance(task, Translation):
            raise ValueError(f"{record.run_id} is a run of the task {record.choice('task')}")
        try:
            data = task.data
        except (ValueError, OSError) as error:
            raise ValueError(
                f"the text of the test cannot be had: {error} (--data-dir says where)"
            ) from None
        if data.description["checksums"][SPLIT] != checksums(record):
            place = data_dir or record.config.get("data_dir")
            raise ValueError(
                f"{record.run_id} was tested on other text than data_dir={place} holds now: "
                "--data-dir says where it is"
            )
        text = data.texts[SPLIT]
        return text.source, data.plain(text.target)
