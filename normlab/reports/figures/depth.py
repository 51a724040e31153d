"""The figure of the depth study: the gradient at the last feed-forward layer, by depth."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from normlab.reports.figures.panels import End, label, name_lines, panels
from normlab.reports.figures.style import LIGHT, Theme, drawing, line, scale_up_axis

if TYPE_CHECKING:
    import matplotlib.figure


def depth(rows: Sequence[Mapping[str, Any]], theme: Theme = LIGHT) -> "matplotlib.figure.Figure":
    """Draw the gradient norm of the last feed-forward layer against the number of layers.

    A row is `{"placement": "pre" or "post", "layers": int, "seed": int, "norm": float}`. The line
    is the mean over seeds, the band reaches from the smallest seed to the largest. Rows whose norm
    is not finite are left out.
    """
    found: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if math.isfinite(row["norm"]):
            of_placement = found.setdefault(row["placement"], {})
            of_placement.setdefault(float(row["layers"]), []).append(float(row["norm"]))
    placements = sorted(found, key=lambda name: (name != "pre", name))
    looks = [line(theme, number) for number in range(len(placements))]
    labels = [label(name) for name in placements]
    with drawing():
        figure, (axes,) = panels(
            theme,
            ["Gradient of the last feed-forward layer"],
            labels,
            columns=1,
            width=3.6,
            height=2.3,
            foot="line: mean over seeds   band: smallest to largest seed",
        )
        ends: list[End] = []
        for name, look, text in zip(placements, looks, labels, strict=True):
            curve = {layers: found[name][layers] for layers in sorted(found[name])}
            means = [statistics.fmean(norms) for norms in curve.values()]
            low, high = [min(n) for n in curve.values()], [max(n) for n in curve.values()]
            axes.fill_between(list(curve), low, high, color=look.hue, alpha=0.18, linewidth=0)
            axes.plot(
                list(curve),
                means,
                color=look.hue,
                linestyle=look.stroke,
                linewidth=1.3,
                marker=look.mark,
                markersize=3.5,
                label="mean",
            )
            ends.append(End(text, look, (list(curve)[-1], means[-1])))
        axes.set_xlabel("layers")
        axes.set_xticks(sorted({layers for curve in found.values() for layers in curve}))
        axes.set_ylabel("gradient norm")
        scale_up_axis(
            axes, [n for curve in found.values() for norms in curve.values() for n in norms]
        )
        name_lines(axes, theme, ends)
    return figure
