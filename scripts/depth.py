"""Measure the gradient at initialization by depth: `python scripts/depth.py [FOLDER]`.

It measures the gradient norm of the last feed-forward layer's second weight, in models of 6 to 50
layers per stack, pre- and post-norm, over ten seeds. Xiong et al. 2020 report that this norm is
constant for post-norm and falls with the square root of depth for pre-norm. Each model is examined
as by `normlab inspect --only gradients`. Writes `gradients.json` (every value), `table.md` and the
figures into FOLDER (default: results/depth_gradients). Takes about half an hour on one core; then
`normlab study publish --accept results/depth_gradients`.
"""

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from normlab.formats import pipes
from normlab.inspection.model.built_model import model_from_overrides
from normlab.inspection.model.gradients import gradients
from normlab.records.files import atomic_write
from normlab.reports.figures.drawing import draw, write
from normlab.reports.figures.line_styles import DARK, LIGHT, styles_of
from normlab.reports.figures.panel import Panel, Series

TITLE = "Gradient of the last feed-forward layer at initialisation"
FOLDER = Path(__file__).resolve().parents[1] / "results" / "depth_gradients"
PLACEMENTS = ("pre", "post")
LAYERS = (6, 8, 10, 12, 14, 18, 24, 36, 50)
SEEDS = range(1, 11)
CONFIG = ("task=toy", "norm=ln", "model=small", "device=cpu", "precision=fp32", "observe.threads=1")


def measure(placement: str, layers: int, seed: int) -> dict[str, Any]:
    """Return a gradient norm with its placement, number of layers and seed."""
    of = (f"placement={placement}", f"model.depth={layers}", f"seed={seed}")
    found = gradients(model_from_overrides([*CONFIG, *of]))
    norm = found.values["last_second_weight"]
    return {"placement": placement, "layers": layers, "seed": seed, "norm": norm}


def panel(rows: Sequence[Mapping[str, Any]]) -> Panel:
    """Return the chart of the gradient over the layers, one line per placement."""
    lines: list[Series] = []
    for placement in PLACEMENTS:
        seeds: dict[int, dict[float, float]] = {}
        for row in rows:
            if row["placement"] == placement and math.isfinite(row["norm"]):
                seeds.setdefault(row["seed"], {})[float(row["layers"])] = row["norm"]
        lines.append(Series.of_seeds(placement, "", "", [*seeds.values()]))
    ticks = tuple(map(float, LAYERS))
    return Panel("gradient", TITLE, "gradient norm", tuple(lines), "layers", ticks)


def depth_table(config: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean and standard deviation by depth and placement, and the fitted power of depth.

    A row is one gradient norm (`norm`), with its `placement`, `layers` and `seed`.
    """
    norms: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        norms.setdefault((row["placement"], row["layers"]), []).append(row["norm"])
    placements = list(dict.fromkeys(placement for placement, _ in norms))
    table = [
        [
            str(depth),
            *(f"{statistics.fmean(own):.3f} +- {statistics.stdev(own):.3f}" for own in each),
        ]
        for depth in dict.fromkeys(depth for _, depth in norms)
        if (each := [norms[placement, depth] for placement in placements])
    ]
    fits: list[str] = []
    for placement in placements:  # least-squares fit of the logarithms
        own = [row for row in rows if row["placement"] == placement]
        logs = [[math.log(row[key]) for row in own] for key in ("layers", "norm")]
        fits.append(f"{statistics.linear_regression(*logs).slope:.2f} ({placement})")
    seeds = len({row["seed"] for row in rows})
    notes = (
        f"{TITLE}: norm of the second weight, mean +- standard deviation of {seeds} seeds; as many "
        "layers in the encoder as in the decoder",
        f"norm ~ layers ** k with k = {', '.join(fits)}; Xiong et al. 2020 predict -0.5 and 0",
        f"`{' '.join(config[:3])}`: width 256, one batch of 32 sentences, no dropout",
    )
    return "\n".join([*pipes(["layers", *placements], table, words=0, notes=notes), ""])


def main(folder: Path) -> None:
    """Measure and write everything."""
    rows = []
    for layers, placement, seed in product(LAYERS, PLACEMENTS, SEEDS):
        rows.append(measure(placement, layers, seed))
        print(rows[-1], flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "gradients.json": json.dumps({"config": CONFIG, "rows": rows}, indent=1) + "\n",
        "table.md": depth_table(CONFIG, rows),
    }
    for name, text in contents.items():
        with atomic_write(folder / name) as file:
            file.write(text)
    for name, theme in (("depth", LIGHT), ("depth-dark", DARK)):
        figure = draw([panel(rows)], styles_of(dict.fromkeys(PLACEMENTS, "ln")), theme)
        for suffix in ("svg", "png"):
            write(figure, folder / f"{name}.{suffix}", title=TITLE)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
