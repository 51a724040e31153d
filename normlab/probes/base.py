"""Probes, the read-only observers of the training loop, and the group that runs several.

A probe names the kind of place that it measures (`at`) and returns figures of one call there
(`measure`); hooks, names, averages and checkpoints are here. A probe may read the model, its
gradients and the step's loss; it never changes parameters, buffers, gradients or a random state,
and it never runs the model (a second training-mode forward would move batch norm's running
statistics). Ten steps with all probes and with none are bitwise equal. With accumulation a hook
sees every micro-batch and the probe reports the last one; each process reports its own batches.

A figure of a site is called `<figure>/<site>`, and `<figure>` alone is the whole model's. Figures
stay on the device for some steps and are transferred at once, so that a GPU does not wait at every
step.
"""

import math
from abc import ABC
from collections import deque
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Stream
from normlab.probes.sites import ABSENT, Seen, places, recurrent_norms

PREFIX = "stability"
RECENT = 50  # steps that are kept for the record of a run that diverges
_FLUSH_EVERY = 32  # steps whose figures a probe may leave on the device
Metric = Tensor | float | int | Callable[[], float]
Values = Mapping[str, Tensor]  # figures: one element each


@dataclass(frozen=True)
class StepView:
    """What probes see of one update, numbered from 1.

    `loss` is the mean per target token over the step's micro-batches and all ranks, and `grad_norm`
    the norm of the whole gradient before clipping, both detached and written only once. `tokens`
    are the real target tokens over all ranks, `padding_share` (0 to 1) is the padding among the
    positions of source and target.
    """

    step: int
    model: nn.Module
    loss: Float[Tensor, ""]
    grad_norm: Float[Tensor, ""]
    lr: float
    tokens: int
    padding_share: float
    prefix: str = PREFIX
    collected: dict[str, Metric] = field(default_factory=dict, repr=False, compare=False)

    def log(self, name: str, value: Metric) -> None:
        """Collect a metric; a function is asked only when the row is written."""
        self.collected[f"{self.prefix}/{name}"] = value


class Probe(ABC):  # noqa: B024 - a probe overrides what it needs
    """Measure a run at one kind of place; log each figure, and average it over the run.

    Attributes:
        at: the kinds of places whose calls `measure` is given (see `sites.places`); empty: it is
            given the `StepView` before the optimizer's update, and returns all figures.
        after_backward: whether `measure` waits for the backward pass, to have `Seen.grad`.
        largest: figures that keep the largest value of a run and of a model in place of the mean.
        remembered: the attributes that a checkpoint keeps: numbers, text, tensors, and lists,
            tuples and dicts of them.
        absent: why it does not apply to a model without such places.
        places: kind and module of each place that is measured, by its site.
        why_not: why it does not apply to the model that it was attached to; else empty.
    """

    at: ClassVar[tuple[str, ...]] = ()
    after_backward: ClassVar[bool] = False
    largest: ClassVar[tuple[str, ...]] = ()
    remembered: ClassVar[tuple[str, ...]] = ()
    absent: ClassVar[str] = ""
    why_not: str = ""

    def __init__(self, *, every: int = 1) -> None:
        """Measure each `every`-th update."""
        if every < 1:
            raise ValueError(f"every: {every} is not a positive number of steps")
        self.every = every
        self.watching = False
        self.places: dict[str, tuple[str, nn.Module]] = {}
        self._found: dict[str, Values] = {}
        self._waiting: dict[str, list[Seen]] = {}
        self._pending: list[Values] = []
        self._kept: dict[str, tuple[float, int, float]] = {}  # sum, count and largest by figure

    # What a probe overrides

    def measure(self, seen: Any) -> Values:
        """Return the figures of a call (`Seen`), or of a step (`StepView`) where `at` is empty."""
        return {}

    def figures(self, found: Mapping[str, Values]) -> Values:
        """Return the figures of a step, whole and by site, from those of each site."""
        return all_by_site(found, largest=self.largest)

    def hear(self, numbers: Mapping[str, float]) -> None:
        """Take the figures of a step as numbers; what is not finite is left out of the run's."""
        for name, value in numbers.items():
            if math.isfinite(value):
                total, count, peak = self._kept.get(name, (0.0, 0, -math.inf))
                self._kept[name] = total + value, count + 1, max(peak, value)

    def applies(self, module: nn.Module) -> bool:
        """Tell whether a module at one of the places is measured."""
        return True

    # What the base does

    def attach(self, model: nn.Module) -> None:
        """Put read-only hooks on the places."""
        stepwise = set(recurrent_norms(model).values())
        found = places(model, self.at).items()
        self.places = {site: place for site, place in found if self.applies(place[1])}
        for site, (_, module) in self.places.items():
            module.register_forward_hook(self._hook(site, joined=module in stepwise))
        if self.at and not self.places:
            self.why_not = self.absent or ABSENT[self.at[0]]

    def _hook(self, site: str, *, joined: bool) -> Callable[..., None]:
        def look(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            seen = Seen(site, module, given, output)
            if self.watching and (joined or self.after_backward):
                self._wait(seen, joined=joined)
            elif self.watching:
                with torch.no_grad():
                    self._found[site] = self.measure(seen)

        return look

    def _wait(self, seen: Seen, *, joined: bool) -> None:
        """Keep a call until the backward pass is done."""
        x, *rest = seen.given
        calls = self._waiting.setdefault(seen.site, [])
        if not joined or rest[0].start == 0:  # a new batch begins
            calls.clear()
        output, seen.y, seen.given = seen.y, None, (x.detach(), *rest)
        calls.append(seen)
        if self.after_backward and output.requires_grad and not torch.compiler.is_compiling():

            def keep(grad: Tensor) -> None:
                seen.grad = grad

            output.register_hook(keep)

    def before_forward(self, step: int) -> None:
        """Begin to look, before the forward passes of a step."""
        self.watching = True

    def before_update(self, view: StepView) -> None:
        """Measure a step whose gradients are complete and not clipped, before the optimizer."""
        self.watching = False
        if not self.at:
            self.take(view, self.measure(view))
            return
        waiting, self._waiting = self._waiting, {}
        for site, calls in waiting.items():
            self._found[site] = self.measure(_joined(calls))
        found, self._found = self._found, {}
        self.take(view, self.figures({site: of for site, of in found.items() if of}))

    def after_update(self, view: StepView) -> None:  # noqa: B027 - optional
        """See the step after the optimizer has moved the parameters."""

    def take(self, view: StepView, values: Values) -> None:
        """Log figures of a step, and let `hear` have them later."""
        for name, value in values.items():
            view.log(name, value)
        if values:
            self.later(values)

    def later(self, values: Values) -> None:
        """Hand the figures of a step to `hear` as numbers, in order, some steps later."""
        self._pending.append(values)
        if len(self._pending) >= _FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        """Let `hear` have all that is pending."""
        pending, self._pending = self._pending, []
        numbers = iter(to_floats([value for row in pending for value in row.values()]))
        for row in pending:
            self.hear({name: next(numbers) for name in row})

    def summary(self) -> dict[str, float]:
        """Return the figures of the run by name; one that was never finite is left out."""
        self.flush()
        return {
            name: peak if name.split("/")[0] in self.largest else total / count
            for name, (total, count, peak) in self._kept.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        self.flush()
        return deepcopy({name: getattr(self, name) for name in ("_kept", *self.remembered)})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state that `state_dict` gave."""
        for name in ("_kept", *self.remembered):
            setattr(self, name, deepcopy(state[name]))


def _joined(calls: list[Seen]) -> Seen:
    """Return the calls of one batch as one call."""
    last = calls[-1]
    if len(calls) == 1:
        return last
    values, real = zip(*(seen.input for seen in calls), strict=True)
    given = torch.cat(values, 1), Stream(torch.cat(real, 1))
    return Seen(last.site, last.module, given, None)


def all_by_site(found: Mapping[str, Values], *, largest: Collection[str] = ()) -> Values:
    """Return every figure that was found, of the whole model and by site.

    The whole model's is the mean over its sites, of those in `largest` the largest.
    """
    result: dict[str, Tensor] = {}
    for figure in dict.fromkeys(figure for values in found.values() for figure in values):
        values = {f"{figure}/{site}": of[figure] for site, of in found.items() if figure in of}
        together = torch.stack(list(values.values()))
        whole = together.max() if figure in largest else together.mean()
        result |= {figure: whole, **dict(zip(values, together, strict=True))}
    return result


class ProbeGroup:
    """Run several probes as one, by their names in the config (`observe.probe.<name>`)."""

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        """Take the probes by name, in the order in which they are called."""
        self.probes = dict(probes)
        self._latest: dict[str, Metric] = {}
        self._recent: deque[dict[str, Metric]] = deque(maxlen=RECENT)

    def attach(self, model: nn.Module) -> None:
        """Attach each probe to the model as the task built it, not wrapped and not compiled."""
        for probe in self.probes.values():
            probe.attach(model)

    @property
    def notice(self) -> str:
        """Which probes do not apply to the model and why, in a line; empty where all do."""
        reasons: dict[str, list[str]] = {}
        for name, probe in self.probes.items():
            if probe.why_not:
                reasons.setdefault(probe.why_not, []).append(name)
        listed = [f"{', '.join(names)} ({reason})" for reason, names in reasons.items()]
        return f"probes that do not apply: {'; '.join(listed)}" if listed else ""

    def before_forward(self, step: int) -> None:
        """Tell the probes whose turn it is that the step begins."""
        for _, probe in self._due(step):
            probe.before_forward(step)

    def before_update(self, view: StepView) -> None:
        """Show the step to the probes whose turn it is, before the optimizer's update."""
        row = {"train/loss": view.loss, "train/grad_norm": view.grad_norm, "train/lr": view.lr}
        self._recent.append({"step": view.step, **row})
        self._show(view, lambda probe: probe.before_update)

    def after_update(self, view: StepView) -> None:
        """Show the step to the probes whose turn it is, after the optimizer's update."""
        self._show(view, lambda probe: probe.after_update)

    def _due(self, step: int) -> list[tuple[str, Probe]]:
        return [(name, probe) for name, probe in self.probes.items() if step % probe.every == 0]

    @torch.no_grad()
    def _show(self, view: StepView, hook: Callable[[Probe], Callable[[StepView], None]]) -> None:
        collected: dict[str, Metric] = {}
        for name, probe in self._due(view.step):
            hook(probe)(replace(view, prefix=f"{PREFIX}/{name}", collected=collected))
        self._latest |= collected
        # A function would answer later, and then of a later step.
        self._recent[-1] |= {k: v for k, v in collected.items() if not callable(v)}

    def metrics(self) -> dict[str, float]:
        """Return and forget the last value of each metric logged since the last call."""
        latest, self._latest = self._latest, {}
        return as_floats(latest)

    def recent(self) -> dict[str, list[float | None]]:
        """Return the last `RECENT` steps as columns; None where nobody looked."""
        rows = [as_floats(row) for row in self._recent]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    def summary(self) -> dict[str, float]:
        """Return each probe's figures of the run under `stability/<probe>/<name>`."""
        return {
            f"{PREFIX}/{name}/{key}": float(value)
            for name, probe in self.probes.items()
            for key, value in probe.summary().items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each probe by name, what awaits the next row, and the last steps."""
        return {
            "probes": {name: probe.state_dict() for name, probe in self.probes.items()},
            "latest": as_floats(self._latest),
            "recent": [as_floats(row) for row in self._recent],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the probes named in `state`; one that is new to the run starts afresh."""
        for name, probe in self.probes.items():
            if name in state["probes"]:
                probe.load_state_dict(state["probes"][name])
        self._latest = dict(state["latest"])
        self._recent.clear()
        self._recent.extend(dict(row) for row in state["recent"])


def as_floats(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Return metrics as numbers, those on the device in one transfer."""
    values = {name: value() if callable(value) else value for name, value in metrics.items()}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    numbers = dict(zip(tensors, to_floats(list(tensors.values())), strict=True))
    return {name: float(numbers.get(name, value)) for name, value in values.items()}


def to_floats(values: list[Tensor]) -> list[float]:
    """Move one-element tensors to the host in one transfer, as float64."""
    if not values:
        return []
    device = values[0].device
    wide = [value.detach().reshape(()).double().to(device) for value in values]
    return torch.stack(wide).tolist()
