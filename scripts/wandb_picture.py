"""Draw docs/howto/wandb_groups.svg: recorded runs as W&B shows them, one by one and by group.

python scripts/wandb_picture.py
"""

from dataclasses import replace
from pathlib import Path

from normlab.notebook import load_records
from normlab.records.store import series
from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.line_styles import LIGHT, styles_of
from normlab.reports.figures.panel import Panel, Series
from normlab.reports.runs import rows_of_run
from normlab.training.wandb import group

RUNS, METRIC = "results/batching/small", "valid/bleu"
OUT = Path("docs/howto/wandb_groups.svg")


def main() -> None:
    """Draw each run's curve, next to the mean and the range of each group."""
    records = load_records(RUNS)
    groups: dict[str, list[dict[float, float]]] = {}
    for folder, record in zip(records.folders, records, strict=True):
        curve = {float(step): value for step, value in series(rows_of_run(folder), METRIC)}
        groups.setdefault(group(record.config["choices"], record.config), []).append(curve)
    alone, grouped = f"{len(records)} runs", "grouped by Group"
    each = [Series.of_seeds(n, alone, "", [one]) for n, own in groups.items() for one in own]
    means = [Series.of_seeds(name, grouped, "", own) for name, own in groups.items()]
    panel = Panel(METRIC, METRIC, "BLEU", (*each, *means), log_from=None)
    styles = styles_of({name: "gn" if "+" in name else name.split("-")[0] for name in groups})
    styles = {name: replace(style, dashes="none") for name, style in styles.items()}
    figure = draw([panel], styles, LIGHT)
    figure.legends[0].get_texts()[-1].set_text("lowest to highest run of a group, about the mean")
    write(figure, OUT, title="A sweep over norms, batching and seeds: each run, and by group")


if __name__ == "__main__":
    main()
