"""Decides what `normlab compare A B --bootstrap` reads and prints."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._terminal import print_markdown, print_table
from normlab.records.aggregate import group
from normlab.records.record import RunRecord

if TYPE_CHECKING:
    from normlab.reports.bootstrap import Compared

SAMPLES = 1000


def show_bootstrap(
    runs: Mapping[Path, RunRecord], *, data_dir: Path | None, markdown: bool
) -> None:
    """Compare two settings on the sentences of their test, and print a row a seed.

    Raises ValueError where there are not two, or with the reason why they do not compare.
    """
    from normlab.reports import bootstrap

    sides = _sides(runs)
    (first, without), (second, also_without) = (bootstrap.read(side) for side in sides)
    bootstrap.check_alike([*first.values(), *second.values()])
    references = _references(next(iter(first.values())).record, data_dir)
    found = bootstrap.compare(first, second, references, samples=SAMPLES)
    names = [_label(side) for side in sides]
    columns = ["seed", *names, "difference", "p"]
    rows = [_row(str(seed), test) for seed, test in found.seeds.items()]
    if len(rows) > 1:
        rows.append(_row("all", found.together))
    show = print_markdown if markdown else print_table
    notes = [*_notes(found, len(references)), *without, *also_without, *found.notes]
    show(columns, rows, notes=notes, numeric=columns)


def _sides(runs: Mapping[Path, RunRecord]) -> list[dict[Path, RunRecord]]:
    folders = {id(record): folder for folder, record in runs.items()}
    groups = list(group(runs.values()).values())
    if len(groups) != 2:
        labels = ", ".join(sorted(_label_of(members[0]) for members in groups)) or "none"
        raise ValueError(
            f"--bootstrap compares two experiments, and there are {len(groups)}: {labels}; name "
            "two, the one that is compared with first: normlab compare runs/A runs/B --bootstrap"
        )
    return [{folders[id(record)]: record for record in members} for members in groups]


def _label(side: Mapping[Path, RunRecord]) -> str:
    return _label_of(next(iter(side.values())))


def _label_of(record: RunRecord) -> str:
    return record.run_id.removesuffix(f"-seed{record.seed}")


def _row(name: str, test: Any) -> list[str]:
    figures = (test.baseline, test.other)
    gap = f"{test.other - test.baseline:+.2f}"
    return [name, *(f"{figure:.2f}" for figure in figures), gap, f"{test.p:.4f}"]


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


def _references(record: RunRecord, data_dir: Path | None) -> Sequence[str]:
    """Return the references that a run was tested with, prepared again from its config."""
    from normlab.build import build_task
    from normlab.config import from_dict, to_dict
    from normlab.reports.bootstrap import SPLIT, test_set
    from normlab.tasks.translation import Translation

    changes = [] if data_dir is None else [f"data_dir={data_dir}"]
    task = build_task(to_dict(from_dict(record.config, changes)))
    assert isinstance(task, Translation), "only translation is scored by test/bleu"
    try:
        data = task.data
    except ValueError as error:
        raise ValueError(f"the references cannot be had: {error} (--data-dir says where)") from None
    if data.description["checksums"][SPLIT] != test_set(record):
        raise ValueError(
            f"{record.run_id} was tested on other text than data_dir="
            f"{data_dir or record.config.get('data_dir')} holds now: --data-dir says where it lies"
        )
    return data.plain(data.texts[SPLIT].target)
