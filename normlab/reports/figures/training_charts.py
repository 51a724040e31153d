"""Charts of losses, scores and probes over training."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from normlab.metrics.glossary import NATS, metric
from normlab.metrics.score_text import title
from normlab.records.store import series
from normlab.reports.figures.panel import LOG_FROM, Panel, Series
from normlab.reports.runs import Run, by_setting
from normlab.reports.setting_names import point_name

TRAIN, VALID = "train/loss", "valid/loss"
_LOSS_LOG_FROM = 3.0  # low, because differences appear only after the first steep fall
_UNSHOWN = "train/tokens_per_second"  # depends on the machine
OVER_TRAINING = (
    "train/grad_norm",
    "stability/updates/ratio",
    "stability/tid/mean",
    "stability/tid/var",
    "stability/fluctuation/mean",
    "stability/fluctuation/var",
    "stability/statistics_gradient/mean",
    "stability/statistics_gradient/var",
    "stability/activations/var",
    "stability/activations/largest",
    "stability/residual/growth",
    "stability/attention/entropy",
)
"""The metrics that say most about stability, in the order in which they are drawn."""


def over_training(columns: Sequence[str], runs: Sequence[Run]) -> dict[str, list[Panel]]:
    """Return curves of losses and scores (`learning`), and of gradients and probes (`stability`).

    Charts of the table's own columns and the most informative probes come first.
    """
    logged = sorted({name for run in runs for row in run.curve for name in row})

    def charts(first: Iterable[str], *others: tuple[str, int]) -> list[Panel]:
        """Return charts of the `first` metrics, then of others with a prefix and slash count."""
        rest = (
            name
            for start, slashes in others
            for name in logged
            if name.startswith(start) and name.count("/") == slashes
            if name not in (TRAIN, VALID, _UNSHOWN)
        )
        curves = (training_chart(runs, name) for name in dict.fromkeys([*first, *rest]))
        # A single point is not a curve.
        return [p for p in curves if any(len(line.x) > 1 or line.lost for line in p.series)]

    validated = [f"valid/{column.partition('/')[2]}" for column in columns]
    return {
        "learning": charts([TRAIN, VALID, *validated], ("valid/", 1)),
        "stability": charts(OVER_TRAINING, ("stability/", 2), ("train/", 1)),
    }


def training_chart(runs: Sequence[Run], name: str) -> Panel:
    """Return the chart of a metric over training. Divergences are marked on the training loss."""
    lines: list[Series] = []
    for (row, at), members in by_setting(runs).items():
        curves = [
            {float(step): y for step, y in series(run.curve, name) if math.isfinite(y)}
            for run in members
        ]
        line = Series.of_seeds(row, point_name(at), at, curves)
        lost = [
            (run.key.seed, run.record.outcome.step, next(reversed(curve.values()), None))
            for run, curve in zip(members, curves, strict=True)
            if run.record is not None and run.outcome == "diverged" and name == TRAIN
        ]
        lines.append(replace(line, lost=tuple(lost)))
    known = metric(name)
    unit = known.whole_unit if known else ""
    falls = known is not None and known.better == "less"
    log_from = LOG_FROM if falls or not name.startswith("valid/") else None
    if name in (TRAIN, VALID):
        units = {run.record.unit.removesuffix("s") for run in runs if run.record}
        unit = f"{NATS} per {units.pop()}" if len(units) == 1 else NATS
        log_from = _LOSS_LOG_FROM
    drawn = tuple(line for line in lines if line.x or line.lost)
    return Panel(name, title(name), unit, drawn, log_from=log_from)
