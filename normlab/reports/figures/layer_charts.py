"""Charts of a probe's metric by layer, with encoder and decoder as facets."""

import math
from collections.abc import Sequence

from normlab.metrics.glossary import metric
from normlab.metrics.score_text import title
from normlab.reports.figures.panel import Panel, Series, joined
from normlab.reports.runs import Run, by_setting
from normlab.reports.setting_names import point_name

_LAST = 10**6
_RANKS = {
    "encoder": 0,
    "decoder": 1,
    "output": 2,
    "embedding": -1,
    "final": _LAST,
    "self": 0,
    "cross": 1,
    "ffn": 2,
    "ffn_inner": 3,
}
"""The order in which parts of a model are drawn, in addition to layer numbers."""


def layer_chart(runs: Sequence[Run], name: str) -> Panel:
    """Return the chart of a metric by layer, with encoder and decoder as facets."""
    start, profiles = f"{name}/", dict[tuple[str, str], list[dict[str, float]]]()
    for place, members in by_setting(runs).items():
        logged = [run.record.stability.items() for run in members if run.record is not None]
        profiles[place] = [
            {
                k.removeprefix(start): y
                for k, y in metrics
                if k.startswith(start) and math.isfinite(y)
            }
            for metrics in logged
        ]
    layers = sorted(
        {key for seeds in profiles.values() for profile in seeds for key in profile}, key=_depth
    )
    lines: list[Series] = []
    for part in dict.fromkeys(map(_stack, layers)):
        positions = {float(x): key for x, key in enumerate(layers) if _stack(key) == part}
        for (row, at), seeds in profiles.items():
            curves = [
                {x: each[key] for x, key in positions.items() if key in each} for each in seeds
            ]
            lines.append(Series.of_seeds(row, joined(part, point_name(at)), at, curves))
    ticks = tuple(map(float, range(len(layers))))
    inside = [layer.partition(".")[2].replace(".", " ") or layer for layer in layers]
    names = tuple(f"layer {each}" if each.isdecimal() else each for each in inside)
    drawn = tuple(line for line in lines if line.x)
    known = metric(name)
    unit = known.whole_unit if known else ""
    return Panel(name, title(name), unit, drawn, "", ticks, names)


def _stack(place: str) -> str:
    """Return a module's stack, such as `encoder`. The module `output` belongs to the decoder."""
    return "decoder" if place == "output" else place.split(".")[0]


def _depth(place: str) -> tuple[list[int], str]:
    """Return a key that sorts modules in forward order: embedding, layers, final, output."""
    words = place.split(".")
    return [int(w) if w.isdecimal() else _RANKS.get(w, _LAST) for w in words], place
