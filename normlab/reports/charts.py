"""Which charts runs have: curves over training, probes, scores over a numeric axis, by layer."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from normlab.records.record import RunRecord
from normlab.records.store import series, spike_steps
from normlab.reports.panels import LOG_FROM, Event, Look, Panel, Series, Spread, looks_of, spread
from normlab.reports.runs import Run
from normlab.reports.table import Row, Table
from normlab.studies import Study

TRAIN, VALID = "train/loss", "valid/loss"
_UNRANKED = 10**6
_RANKS = {
    **{"encoder": 0, "decoder": 1, "output": 2, "embedding": -1, "final": _UNRANKED},
    **{"self": 0, "cross": 1, "ffn": 2, "ffn_inner": 3},
}
"""The order of the words of a place, in which layers have numbers."""
_LOSS_LOG_FROM = 3.0  # early: what matters happens after the first steep fall
_AXES = {"batch_size": "batch size (sequences)", "model.depth": "depth (layers per stack)"}
_UNSHOWN = ("train/tokens_per_second",)  # says how fast this machine was
_TITLES = {
    TRAIN: ("Training loss", "nats"),
    VALID: ("Validation loss", "nats"),
    "train/grad_norm": ("Gradient norm", "norm before clipping"),
    "stability/updates/ratio": ("Update size", "|change| / |weights|"),
    "stability/tid/mean": ("TID, mean", "relative distance"),
    "stability/tid/var": ("TID, variance", "relative distance"),
    "stability/fluctuation/mean": ("Fluctuation, mean", "distance per feature"),
    "stability/fluctuation/var": ("Fluctuation, variance", "distance per feature"),
    "stability/statistics_gradient/mean": ("Gradient of the mean", "norm per feature"),
    "stability/statistics_gradient/var": ("Gradient of the variance", "norm per feature"),
    "stability/activations/var": ("Activation variance", "activation squared"),
    "stability/activations/largest": ("Largest activation", "|activation|"),
    "stability/residual/growth": ("Residual growth", "last rms / first rms"),
    "stability/attention/entropy": ("Attention entropy", "share of the highest"),
}
_OVER_TRAINING = tuple(_TITLES)[2:]
_BY_LAYER = {
    "stability/gradients/norm": ("Gradient norm", "norm before clipping"),
    "stability/tid/mean": ("TID of the mean", "relative distance"),
    "stability/tid/var": ("TID of the variance", "relative distance"),
    "stability/residual/rms": ("Residual stream", "root mean square"),
}


def row_looks(runs: Iterable[Run], rows: Iterable[str]) -> dict[str, Look]:
    """Return the looks of rows by the norm of their first run that has a config."""
    norms: dict[str, str] = {}
    for run in runs:
        if run.settings:
            norms.setdefault(run.planned.row, run.norm)
    return looks_of({row: norms.get(row, row) for row in rows})


def finite(points: Sequence[tuple[int, float]]) -> dict[float, float]:
    """Return the finite values by their steps; of two at one step the later."""
    return {float(x): y for x, y in points if math.isfinite(y)}


@dataclass(frozen=True)
class Group:
    """Charts that belong together; those of `more` are shown on request."""

    shown: tuple[Panel, ...]
    more: tuple[Panel, ...] = ()

    @property
    def all(self) -> tuple[Panel, ...]:
        """Return all charts."""
        return (*self.shown, *self.more)


_Grouped = Mapping[tuple[str, str], Sequence[Run]]


def learning(study: Study, runs: Iterable[Run]) -> Group:
    """Return the curves of losses and of the scores in the study's table, then others."""
    grouped = _grouped(runs)
    columns = [f"valid/{column.partition('/')[2]}" for column in study.columns]
    first = list(dict.fromkeys([TRAIN, VALID, *columns]))
    others = [name for name in _names(grouped, "valid/", 1) if name not in first]
    return Group(_panels(grouped, first), _panels(grouped, others))


def stability(runs: Iterable[Run]) -> Group:
    """Return the curves of gradients and of probes: the most telling ones, then all others."""
    grouped = _grouped(runs)
    names = [*_names(grouped, "stability/", 2), *_names(grouped, "train/", 1)]
    others = [name for name in names if name not in (*_OVER_TRAINING, TRAIN, VALID, *_UNSHOWN)]
    return Group(_panels(grouped, _OVER_TRAINING), _panels(grouped, others))


def tokens(runs: Iterable[Run]) -> list[dict[str, object]]:
    """Return how many tokens each setting had seen at its steps, for an axis of tokens."""
    seen: list[dict[str, object]] = []
    for (row, at), members in _grouped(runs).items():
        counts: dict[int, float] = {}
        for run in members:  # all seeds of a setting see about as many
            counts = {**dict(series(run.rows, "tokens")), **counts}
        if counts:
            steps = sorted(counts)
            seen.append(
                {"row": row, "at": at, "steps": steps, "tokens": [round(counts[n]) for n in steps]}
            )
    return seen


def loss_unit(records: Iterable[RunRecord]) -> str:
    """Return the unit of the runs' losses: nats per what all of them count, or nats alone."""
    units = {record.loss_unit for record in records}
    return units.pop() if len(units) == 1 else "nats"


def _grouped(runs: Iterable[Run]) -> _Grouped:
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.planned.row, run.planned.point), []).append(run)
    return groups


def _names(grouped: _Grouped, prefix: str, slashes: int) -> list[str]:
    rows = [row for members in grouped.values() for run in members for row in run.rows]
    names = {name for row in rows for name in row}
    return sorted(n for n in names if n.startswith(prefix) and n.count("/") == slashes)


def _panels(grouped: _Grouped, names: Iterable[str]) -> tuple[Panel, ...]:
    return tuple(panel for name in names if (panel := _panel(grouped, name)).series)


def _panel(grouped: _Grouped, name: str) -> Panel:
    lines: list[Series] = []
    for (row, at), members in grouped.items():
        points = spread([finite(series(run.rows, name)) for run in members])
        if points:
            lines.append(Series(row, at, at, points))
    title, unit = _TITLES.get(name, (name, ""))
    is_loss = name in (TRAIN, VALID)
    if is_loss:
        runs = [run for members in grouped.values() for run in members]
        unit = loss_unit(run.record for run in runs if run.record is not None)
    falls = any(word in name for word in ("loss", "nll", "perplexity"))
    log_from = LOG_FROM if falls or not name.startswith("valid/") else None
    return Panel(
        name,
        title,
        unit,
        tuple(lines),
        events=_events(grouped) if name == TRAIN else (),
        log_from=_LOSS_LOG_FROM if is_loss else log_from,
    )


def _events(grouped: _Grouped) -> tuple[Event, ...]:
    found: list[Event] = []
    for (row, at), members in grouped.items():
        for run in members:
            losses = finite(series(run.rows, TRAIN))
            seed = run.planned.seed
            for step in spike_steps(run.rows):
                if step in losses:
                    found.append(Event("spike", row, at, seed, step, losses[step]))
            if run.outcome == "diverged" and run.record is not None:
                value = list(losses.values())[-1] if losses else None
                found.append(Event("diverged", row, at, seed, run.record.outcome.step, value))
    return tuple(found)


def by_axis(study: Study, table: Table) -> dict[str, Group]:
    """Return, for each numeric axis of the grid, the scores of the table over it."""
    found: dict[str, Group] = {}
    for axis, values in study.grid.items():
        if all(map(_is_number, values)):
            panels = [_axis_panel(axis, table, column) for column in table.columns]
            if shown := tuple(panel for panel in panels if len(panel.ticks) > 1):
                found[axis] = Group(shown)
    return found


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _axis_panel(axis: str, table: Table, column: str) -> Panel:
    """Return a score over an axis: a line per row, a facet per point of the other axes."""
    lines: dict[tuple[str, str], dict[float, tuple[str, Spread]]] = {}
    for row in table.rows:
        here, words = _score(row, column), row.point.split()
        own = [word for word in words if word.startswith(f"{axis}=")]
        if here is not None and own:
            facet = " ".join(word for word in words if word not in own)
            x = float(own[0].partition("=")[2])
            lines.setdefault((row.name, facet), {})[x] = (row.point, here)
    made = tuple(
        Series(row, facet, tuple(at for at, _ in own.values()), {x: s for x, (_, s) in own.items()})
        for (row, facet), points in lines.items()
        if (own := dict(sorted(points.items())))
    )
    ticks = tuple(sorted({x for points in lines.values() for x in points}))
    return Panel(column, column, "", made, _AXES.get(axis, axis), ticks, log_from=None)


def _score(row: Row, column: str) -> Spread | None:
    """Return the table's score and how far its seeds lie apart."""
    entry = row.entries[column]
    values = list(entry.values.values())
    if entry.summary is None or not all(math.isfinite(value) for value in values):
        return None
    return Spread(entry.summary.mean, min(values), max(values), entry.summary.n)


@dataclass(frozen=True)
class Kind:
    """A figure of runs: its title, its metrics, and by layers the probe that measures them."""

    title: str
    metrics: Sequence[str]
    probe: str = ""

    def panels(self, runs: Sequence[Run]) -> tuple[Panel, ...]:
        """Return the panels that the runs have."""
        grouped, make = _grouped(runs), _layers if self.probe else _panel
        made = (make(grouped, name) for name in self.metrics)
        return tuple(panel for panel in made if panel.series or panel.events)

    def without(self, runs: Sequence[Run]) -> str:
        """Name the rows that the figure has nothing of, with what they lack; "" for none."""
        panels = self.panels(runs)
        drawn = {line.row for panel in panels for line in panel.series}
        drawn |= {event.row for panel in panels for event in panel.events}
        rows = [row for row in dict.fromkeys(r.planned.row for r in runs) if row not in drawn]
        lack = f"values of the probe {self.probe}; train with probe=full"
        return f"{', '.join(rows)} (no {lack if self.probe else 'finite values'})" if rows else ""


def _layers(grouped: _Grouped, name: str) -> Panel:
    """Return a metric of the records by layer, the encoder and the decoder as facets."""
    start = f"{name}/"
    profiles: dict[tuple[str, str], list[dict[str, float]]] = {}
    for place, members in grouped.items():
        found = [run.record.stability for run in members if run.record is not None]
        profiles[place] = [
            {
                key.removeprefix(start): value
                for key, value in each.items()
                if key.startswith(start) and math.isfinite(value)
            }
            for each in found
        ]
    layers = sorted({key for own in profiles.values() for each in own for key in each}, key=_depth)
    lines: list[Series] = []
    for part in dict.fromkeys(map(_stack, layers)):
        for (row, at), own in profiles.items():
            here = {float(x): key for x, key in enumerate(layers) if _stack(key) == part}
            curves = [{x: each[key] for x, key in here.items() if key in each} for each in own]
            if points := spread(curves):
                lines.append(Series(row, f"{part} {at}".strip(), at, points))
    ticks = tuple(map(float, range(len(layers))))
    inside = [layer.partition(".")[2].replace(".", " ") or layer for layer in layers]
    names = tuple(f"layer {each}" if each.isdecimal() else each for each in inside)
    return Panel(name, *_BY_LAYER[name], tuple(lines), "", ticks, names)


def _stack(place: str) -> str:
    """Return the stack of a place, `encoder` or `decoder`; `output` ends the decoder."""
    return "decoder" if place == "output" else place.split(".")[0]


def _depth(place: str) -> tuple[list[int], str]:
    """Order places as a token passes them: embedding, layers by number, final, output."""
    words = place.split(".")
    return [int(w) if w.isdecimal() else _RANKS.get(w, _UNRANKED) for w in words], place


KINDS = {
    "loss": Kind("Training and validation loss", (TRAIN, VALID)),
    "gradient_by_layer": Kind("Gradient norm by layer", ("stability/gradients/norm",), "gradients"),
    "tid_by_layer": Kind("TID by layer", ("stability/tid/mean", "stability/tid/var"), "tid"),
    "residual_by_layer": Kind("Residual stream", ("stability/residual/rms",), "residual"),
    "over_training": Kind("Stability over training", _OVER_TRAINING),
}
"""The figures of `normlab report --figures` and of `Records.plot`."""
