"""Write the table of a folder of health sheets: `python scripts/health.py FOLDER`.

FOLDER, such as results/health/toy, has the sheets of `normlab inspect` (`*.json`) for one task, and
the packed records of their runs. Writes FOLDER/table.md; accept it afterwards with `normlab study
publish --accept FOLDER`.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from normlab.formats import pipes
from normlab.records.files import atomic_write
from normlab.records.labels import norm_label
from normlab.records.packed import pack

Values = Mapping[str, Any]
"""The values of each finding in a sheet, by question."""
_PADDING = {"exclude": "", "include": ", padding included", "fill": ", padding filled"}

COLUMNS: dict[str, Callable[[Values], str]] = {
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
    "loss, BLEU: from the run's record (valid/loss, test/bleu)",
    "in eval to recalibrated: loss on 256 held-out sentences in evaluation mode (with running "
    "statistics, if the norm has any), with the batch's own statistics in length-sorted batches of "
    "32, as in training (own batch), with the batch's own in batches of mixed lengths, and with "
    "statistics recalibrated on training batches",
    "padding: how far real target tokens move when padding rises to 80 %; mates: how far they move "
    "when the other sentences of the batch change; both relative, with training statistics",
    "future, others: gradient of the first target position's output with respect to later "
    "positions and to other sentences, relative to its own token; with training statistics "
    "(future, eval: in evaluation mode)",
    "design effect: how many tokens of 32 sentences count as one independent token in their mean",
    "step by step: mean difference of log probabilities between decoding token by token and "
    "whole sentences, in nats per token",
    "gradient: gradient norm of the last decoder layer over that of the first",
)


def health_table(folder: Path) -> str:
    """Return the table of a folder of health sheets, with scores from its packed records."""
    records = {record.run_id: record for record in pack(folder).records.values() if record}
    rows: list[list[str]] = []
    for path in folder.glob("*.json"):
        sheet = json.loads(path.read_text("utf-8"))
        config, scores = sheet["subject"]["config"], records[sheet["subject"]["run"]].scores
        padding = _PADDING.get(config["norm"].get("padding", ""), "")
        values = {key: each["values"] for key, each in sheet["findings"].items()}
        cells = [
            f"`{norm_label(config['choices'])}`{padding}",
            str(config["choices"]["placement"]),
            _number(scores["valid/loss"].value),
            f"{scores['test/bleu'].value:.1f}",
            *(column(values) for column in COLUMNS.values()),
        ]
        rows.append(cells)
    rows.sort(key=lambda cells: (cells[1], cells[0]))
    head = ["norm", "placement", "loss", "BLEU", *COLUMNS]
    return "\n".join([*pipes(head, rows, words=2, notes=NOTES), ""])


def _leak(values: Values, mode: str, of: str) -> float:
    return values["leak"][mode]["decoder"][of]


def _loss(values: Values, *names: str) -> float:
    losses = values["statistics"]["loss"]
    return next(losses[name] for name in names if name in losses)


def _share(value: float | None) -> str:
    return "-" if value is None else "0" if value < 1e-5 else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else "0" if abs(value) < 1e-4 else f"{value:.3g}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with atomic_write(place / "table.md") as file:
        file.write(health_table(place))
