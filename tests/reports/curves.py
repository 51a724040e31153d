"""Runs for tests of figures: made by hand, so that a test knows every number."""

import math
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from normlab.records.record import Outcome
from normlab.reports.runs import Run, found_run
from tests.records.examples import record

ENCODER = ["encoder.embedding", "encoder.0", "encoder.1", "encoder.final"]
DECODER = ["decoder.embedding", "decoder.0", "decoder.1", "decoder.final", "output"]
PROBES = {"gradients": {}, "tid": {}, "residual": {}}


def run(
    rows: Iterable[dict[str, Any]] = (),
    *,
    stability: dict[str, float] | None = None,
    outcome: Outcome | None = None,
    **changes: Any,
) -> Run:
    changes = {"observe": {"probe": PROBES}, **changes}
    made = record(**changes)
    end = outcome or Outcome("finished", 100)
    return found_run(replace(made, stability=stability or {}, outcome=end), list(rows))


def loss_rows(losses: dict[int, float], spikes: Iterable[int] = ()) -> list[dict[str, Any]]:
    """Rows of training losses; the count of spikes grows in those of `spikes`."""
    count, rows = 0.0, []
    for step, loss in losses.items():
        count += step in spikes
        rows.append({"step": step, "train/loss": loss, "stability/spikes/count": count})
    return rows


def by_layer(name: str, factor: float = 1.0) -> dict[str, float]:
    """One figure of each layer, doubled from layer to layer, in an order that is not depth's."""
    places = [*ENCODER, *DECODER]
    values = {f"{name}/{place}": factor * 2.0**index for index, place in enumerate(places)}
    return dict(sorted(values.items()))


def drawn(axes: Any, label: str) -> list[Any]:
    """Return the lines of a panel that play a part: mean, spike, diverged."""
    return [line for line in axes.get_lines() if line.get_label() == label]


def points(line: Any) -> list[tuple[float, float]]:
    return list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))


def named(figure: Any) -> list[str]:
    """Return the entries of a figure's legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


nan, inf = math.nan, math.inf
