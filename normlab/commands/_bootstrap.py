"""What `normlab compare A B --bootstrap` reads and prints."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._terminal import print_markdown, print_table
from normlab.commands._texts import parallel_text
from normlab.records.aggregate import group
from normlab.records.labels import norm_label
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
    _, references = parallel_text(next(iter(first.values())).record, bootstrap.SPLIT, data_dir)
    found = bootstrap.compare(first, second, references, samples=SAMPLES)
    names, named = _names(sides)
    columns = ["seed", *names, "difference", "p"]
    rows = [_row(str(seed), test) for seed, test in found.seeds.items()]
    if len(rows) > 1:
        rows.append(_row("all", found.together))
    show = print_markdown if markdown else print_table
    notes = [*found.notes, *named, *_notes(found, len(references)), *without, *also_without]
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


def _names(sides: Sequence[Mapping[Path, RunRecord]]) -> tuple[list[str], list[str]]:
    """Name the two columns by their norms where these differ; a note says which runs they are."""
    labels = [_label(side) for side in sides]
    norms = [norm_label(next(iter(side.values())).config.get("choices", {})) for side in sides]
    names = norms if norms[0] != norms[1] else ["baseline", "other"]
    return names, [f"{name}: {label}" for name, label in zip(names, labels, strict=True)]


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
