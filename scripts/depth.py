"""Measure the gradient at initialisation by depth: `python scripts/depth.py [FOLDER]`.

The gradient norm of the last feed-forward layer's second weight, in models of 6 to 50 layers a
stack, pre- and post-norm, over ten seeds: what Xiong et al. 2020 report flat for post-norm and
falling with the root of depth for pre-norm. Each model is examined as by `normlab inspect --only
gradients`. Writes `gradients.json` (every value), `table.md` and the figures into FOLDER (default:
results/depth_gradients). Takes about half an hour on one core.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from normlab.inspect.depth import gradients
from normlab.inspect.model import subject_of_config
from normlab.records.files import atomic_write
from normlab.reports.figures import draw, write
from normlab.reports.pages import TITLE, depth_table
from normlab.reports.panels import DARK, LIGHT, Panel, Series, looks_of, spread

FOLDER = Path(__file__).resolve().parents[1] / "results" / "depth_gradients"
PLACEMENTS = ("pre", "post")
LAYERS = (6, 8, 10, 12, 14, 18, 24, 36, 50)
SEEDS = range(1, 11)
CONFIG = ("task=toy", "norm=ln", "model=small", "device=cpu", "precision=fp32", "observe.threads=1")


def measure(placement: str, layers: int, seed: int) -> dict[str, Any]:
    """Return one value with what it is of."""
    of = (f"placement={placement}", f"model.depth={layers}", f"seed={seed}")
    found = gradients(subject_of_config([*CONFIG, *of]))
    norm = found.values["last_second_weight"]
    return {"placement": placement, "layers": layers, "seed": seed, "norm": norm}


def panel(rows: Sequence[Mapping[str, Any]]) -> Panel:
    """Return the chart of the gradient over the layers, one line per placement."""
    lines = [
        Series(
            placement,
            "",
            "",
            spread(
                [
                    {float(row["layers"]): row["norm"] for row in rows if of(row, placement, seed)}
                    for seed in SEEDS
                ]
            ),
        )
        for placement in PLACEMENTS
    ]
    ticks = tuple(map(float, LAYERS))
    return Panel("gradient", TITLE, "gradient norm", tuple(lines), "layers", ticks)


def of(row: Mapping[str, Any], placement: str, seed: int) -> bool:
    """Tell whether a row is of a placement and a seed, with a finite value."""
    return (row["placement"], row["seed"]) == (placement, seed) and math.isfinite(row["norm"])


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
        figure = draw([panel(rows)], looks_of(dict.fromkeys(PLACEMENTS, "ln")), theme)
        for suffix in ("svg", "png"):
            write(figure, folder / f"{name}.{suffix}", title=TITLE)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
