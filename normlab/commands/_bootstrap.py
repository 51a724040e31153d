"""What `normlab compare A B --bootstrap` reads and prints."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._comparison import choose_baseline
from normlab.commands._rows import named_rows
from normlab.commands._terminal import print_markdown, print_table
from normlab.commands._texts import parallel_text
from normlab.records.aggregate import Cell, group
from normlab.records.record import RunRecord
from normlab.reports.comparison import not_learned

if TYPE_CHECKING:
    from normlab.reports.bootstrap import Compared

SAMPLES = 1000


def show_bootstrap(
    runs: Mapping[Path, RunRecord], *, baseline: str | None, data_dir: Path | None, markdown: bool
) -> None:
    """Compare two experiments on the sentences of their test, and print one row per seed.

    A difference is the other row minus the baseline, as `compare` prints it. Raises ValueError
    where there are not two, or with the reason why they do not compare.
    """
    from normlab.reports import bootstrap

    cells, sides = _sides(runs, baseline)
    (first, without), (second, also_without) = (bootstrap.read(side) for side in sides)
    bootstrap.check_alike([*first.values(), *second.values()])
    _, references = parallel_text(next(iter(first.values())).record, bootstrap.SPLIT, data_dir)
    found = bootstrap.compare(first, second, references, samples=SAMPLES)
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
        if (low := not_learned(cell, bootstrap.SCORE)) is not None
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
