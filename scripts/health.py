"""Set health sheets side by side: `python scripts/health.py FOLDER`.

FOLDER, such as results/health/toy, holds sheets of `normlab inspect` (`*.json`) of one task and the
packed records of their runs. Writes FOLDER/table.md; then `normlab study publish --accept FOLDER`.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from normlab.records.files import atomic_write
from normlab.records.labels import norm_label
from normlab.records.packed import pack
from normlab.reports.table import pipes

Figures = Mapping[str, Any]
_PADDING = {"exclude": "", "include": ", padding included", "fill": ", padding filled"}

COLUMNS: dict[str, Callable[[Figures], str]] = {
    "in eval": lambda f: _number(_loss(f, "running", "eval")),
    "own batch": lambda f: _number(_loss(f, "batch", "training")),
    "mixed lengths": lambda f: _number(f["statistics"].get("loss_of_mixed_lengths")),
    "recalibrated": lambda f: _number(f["statistics"]["loss"].get("recalibrated")),
    "padding": lambda f: _share(max(f["padding"]["moved"]["training"]["decoder"])),
    "mates": lambda f: _share(f["batch_mates"]["values"]["training"]["decoder"]),
    "future": lambda f: _share(_leak(f, "training", "later")),
    "others": lambda f: _share(_leak(f, "training", "others")),
    "future, eval": lambda f: _share(_leak(f, "eval", "later")),
    "design effect": lambda f: _number(f["batch_mean"]["mean"]["design_effect"][5]),
    "step by step": lambda f: _number(f["stepwise"]["eval"]["difference"]["mean"]),
    "gradient": lambda f: _number(f["gradients"]["growth"]["decoder"]),
}
NOTES = (
    "loss, BLEU: of the run's record (valid/loss, test/bleu)",
    "in eval, ...: loss on 256 held-out sentences, in eval (running statistics where there are "
    "any), by the own statistics of batches of 32 of like length (as in training), by those of "
    "batches of mixed lengths, and by statistics re-estimated on training batches",
    "padding: how far real target tokens move when padding rises to 80 %; mates: when the other "
    "sentences of the batch change; both with training statistics, relative",
    "future, others: slope of the first target position by later ones and by other sentences, "
    "over that by its own token; with training statistics, and in eval",
    "design effect: tokens that are worth one independent token in the mean of 32 sentences",
    "step by step: mean difference in log-probability between incremental and whole, nats a token",
    "gradient: of the last over that of the first decoder layer",
)


def health_table(folder: Path) -> str:
    """Return the table of a folder's health sheets, by the records that are packed there."""
    records = {record.run_id: record for record in pack(folder).records.values() if record}
    rows: list[list[str]] = []
    for path in folder.glob("*.json"):
        sheet = json.loads(path.read_text("utf-8"))
        config, scores = sheet["subject"]["config"], records[sheet["subject"]["run"]].scores
        padding = _PADDING.get(config["norm"].get("padding", ""), "")
        figures = {key: each["figures"] for key, each in sheet["examinations"].items()}
        cells = [
            f"`{norm_label(config['choices'])}`{padding}",
            str(config["choices"]["placement"]),
            _number(scores["valid/loss"].value),
            f"{scores['test/bleu'].value:.1f}",
            *(column(figures) for column in COLUMNS.values()),
        ]
        rows.append(cells)
    rows.sort(key=lambda cells: (cells[1], cells[0]))
    head = ["norm", "placement", "loss", "BLEU", *COLUMNS]
    return "\n".join([*pipes(head, rows, words=2, notes=NOTES), ""])


def _leak(figures: Figures, mode: str, of: str) -> float:
    return figures["leak"][mode]["decoder"][of]


def _loss(figures: Figures, *names: str) -> float:
    losses = figures["statistics"]["loss"]
    return next(losses[name] for name in names if name in losses)


def _share(value: float | None) -> str:
    return "-" if value is None else "0" if value < 1e-5 else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else "0" if abs(value) < 1e-4 else f"{value:.3g}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with atomic_write(place / "table.md") as file:
        file.write(health_table(place))
