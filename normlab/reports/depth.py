"""The gradient at initialisation by depth, in Markdown: the table of results/depth_gradients."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

TITLE = "Gradient of the last feed-forward layer at initialisation"
Gradients = Sequence[Mapping[str, Any]]
"""Values with what each is of: `placement`, `layers`, `seed`, `norm`."""


def depth_table(config: Sequence[str], rows: Gradients) -> str:
    """Return mean and standard deviation by depth and placement, and the fitted power of depth."""
    placements = list(dict.fromkeys(row["placement"] for row in rows))
    layers = list(dict.fromkeys(row["layers"] for row in rows))
    lines = ["| layers | " + " | ".join(placements) + " |", "| ---: | ---: | ---: |"]
    for depth in layers:
        cells: list[str] = []
        for placement in placements:
            own = [r["norm"] for r in rows if (r["layers"], r["placement"]) == (depth, placement)]
            cells.append(f"{statistics.fmean(own):.3f} +- {statistics.stdev(own):.3f}")
        lines.append(f"| {depth} | {' | '.join(cells)} |")
    fits = ", ".join(f"{exponent(rows, placement):.2f} ({placement})" for placement in placements)
    return "\n".join(
        [
            *lines,
            "",
            f"- {TITLE}: norm of the second weight, mean +- standard deviation of "
            f"{len({row['seed'] for row in rows})} seeds; as many layers in the encoder as in the "
            "decoder",
            f"- norm ~ layers ** k with k = {fits}; Xiong et al. 2020 predict -0.5 and 0",
            f"- `{' '.join(config[:3])}`: width 256, one batch of 32 sentences, no dropout",
            "",
        ]
    )


def exponent(rows: Gradients, placement: str) -> float:
    """Return k of the fit norm ~ layers ** k, by least squares of the logarithms."""
    own = [row for row in rows if row["placement"] == placement]
    logs = [[math.log(row[key]) for row in own] for key in ("layers", "norm")]
    return statistics.linear_regression(*logs).slope
