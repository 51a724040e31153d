"""The base class of probes, which observe training without changing it, and groups of probes.

A probe lists the kinds of modules that it measures (`kinds`). It computes metrics from one call of
such a module (`measure_call`), or from the step as a whole (`measure_step`). The base class adds
hooks, names, averages and checkpoints.

A probe may read the model, its gradients and the step's loss. It never changes parameters, buffers,
gradients or the random state, and it never runs the model, because a second forward pass in
training mode would update batch norm's running statistics. So training is bitwise equal with and
without probes. With gradient accumulation, hooks see every micro-batch, but the probe reports only
the last one. Each process reports its own batches.

A metric at one site is called `<metric>/<site>`; its value for the whole model is called
`<metric>`. Values stay on the device until a row is logged, and are then transferred together, so
that no step between rows waits for a GPU.
"""

import math
from abc import ABC
from collections import deque
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from normlab.norms.tokens import Tokens
from normlab.probes.sites import ABSENT, ModuleCall, Site, recurrent_norms, sites
from normlab.records.record import PROBE_PREFIX

RECENT = 50  # the number of last steps that the record of a diverged run shows
_PACK_EVERY = 32  # measured steps whose values are packed into one tensor on the device
Key = TypeVar("Key")
Metric = Tensor | float | int | Callable[[], float]
Values = Mapping[str, Tensor]  # one-element tensors, keyed by metric


@dataclass(frozen=True)
class StepView:
    """What probes see of one update.

    Attributes:
        step: number of the update, from 1.
        loss: mean loss per target token over all micro-batches and ranks.
        grad_norm: norm of the whole gradient before clipping. Like the loss, it is finite, detached
            and never overwritten.
        padding_share: share of padding, from 0 to 1, among the source and target positions.
        prefix: the path that the names of metrics start with.
        collected: the metrics logged so far.
    """

    step: int
    model: nn.Module
    loss: Float[Tensor, ""]
    grad_norm: Float[Tensor, ""]
    lr: float
    padding_share: float
    prefix: str = PROBE_PREFIX
    collected: dict[str, Metric] = field(default_factory=dict, repr=False, compare=False)

    def log(self, name: str, value: Metric) -> None:
        """Log a metric. If `value` is a function, it is called only when the row is written."""
        self.collected[f"{self.prefix}/{name}"] = value


class Probe(ABC):  # noqa: B024 - a probe overrides what it needs
    """An observer that measures a run at certain sites, and averages its metrics over the run.

    Attributes:
        kinds: the kinds of sites whose calls are passed to `measure_call` (see `sites.sites`).
        after_backward: whether `measure_call` runs after the backward pass, which sets
            `ModuleCall.grad`.
        largest: metrics of which the maximum over sites and over the run is reported, instead of
            the mean.
        remembered: attributes saved in checkpoints. They hold numbers, text, tensors, or lists,
            tuples and dicts of these.
        absent: the reason to report if a model has none of the sites.
        sites: the measured sites, keyed by name. It is empty if the probe overrides `attach`.
        why_not: why the probe does not apply to its model; "" if it does.
    """

    kinds: ClassVar[tuple[str, ...]] = ()
    after_backward: ClassVar[bool] = False
    largest: ClassVar[tuple[str, ...]] = ()
    remembered: ClassVar[tuple[str, ...]] = ()
    absent: ClassVar[str] = ""
    why_not: str = ""

    def __init__(self, *, every: int = 1) -> None:
        """Measure every `every`-th update."""
        self.every = every
        self.watching = False
        self.sites: dict[str, Site] = {}
        self._measured: dict[str, Values] = {}
        self._waiting: dict[str, list[ModuleCall]] = {}
        self._pending: list[Values] = []
        self._packed: list[tuple[list[list[str]], Tensor]] = []
        self._totals: dict[str, tuple[float, int, float]] = {}  # sum, count and maximum per metric
        self._hooks: list[RemovableHandle] = []

    # Methods that probes override

    def measure_call(self, call: ModuleCall) -> Values:
        """Return the metrics of one call of a module at a site, by default none."""
        return {}

    def measure_step(self, view: StepView) -> Values:
        """Return the metrics of a step before its update, by default those of its calls."""
        return self.metrics_of(self.collect())

    def metrics_of(self, by_site: Mapping[str, Values]) -> Values:
        """Return a step's metrics per site and for the whole model, given the metrics per site."""
        return all_by_site(by_site, largest=self.largest)

    def accumulate(self, numbers: Mapping[str, float]) -> None:
        """Add the numbers of a step to the averages over the run, except non-finite ones."""
        for name, value in numbers.items():
            if math.isfinite(value):
                total, count, peak = self._totals.get(name, (0.0, 0, -math.inf))
                self._totals[name] = total + value, count + 1, max(peak, value)

    def applies(self, module: nn.Module) -> bool:
        """Return whether to measure this module, which is of one of the `kinds`."""
        return True

    # Methods that the base class implements

    def attach(self, model: nn.Module) -> None:
        """Register hooks at the sites of a model. The hooks change nothing."""
        stepwise = recurrent_norms(model)
        candidates = sites(model, self.kinds).items()
        self.sites = {name: site for name, site in candidates if self.applies(site.module)}
        for name, (_, module) in self.sites.items():
            hook = self._hook(name, joined=module in stepwise)
            self._hooks.append(module.register_forward_hook(hook))
        if self.kinds and not self.sites:
            self.why_not = self.absent or ABSENT[self.kinds[0]]

    def detach(self) -> None:
        """Remove the hooks that `attach` registered."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _hook(self, site: str, *, joined: bool) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            call = ModuleCall(site, module, args, output)
            if self.watching and (joined or self.after_backward):
                self._wait(call, joined=joined)
            elif self.watching:
                with torch.no_grad():
                    self._measured[site] = self.measure_call(call)

        return hook

    def _wait(self, call: ModuleCall, *, joined: bool) -> None:
        """Keep a call until the update, when its batch and its backward pass are complete."""
        x, *rest = call.args
        calls = self._waiting.setdefault(call.site, [])
        if not joined or rest[0].start == 0:  # a new batch starts
            calls.clear()
        output, call.y, call.args = call.y, None, (x.detach(), *rest)
        calls.append(call)
        if self.after_backward and output.requires_grad and not torch.compiler.is_compiling():

            def keep(grad: Tensor) -> None:
                call.grad = grad

            output.register_hook(keep)

    def before_forward(self, step: int) -> None:
        """Start measuring. This is called before the forward passes of a step."""
        self.watching = True

    def before_update(self, view: StepView) -> None:
        """Measure a step before the optimizer's update, when its unclipped gradient is complete."""
        self.watching = False
        self.log_and_queue(view, self.measure_step(view))

    def collect(self) -> dict[str, Values]:
        """Return and clear the metrics of the calls since `before_forward`, keyed by site."""
        waited = {site: self.measure_call(_joined(calls)) for site, calls in self._waiting.items()}
        by_site = {site: of for site, of in (self._measured | waited).items() if of}
        self._waiting, self._measured = {}, {}
        return by_site

    def after_update(self, view: StepView) -> None:  # noqa: B027 - optional
        """Measure a step after the optimizer has updated the parameters."""

    def log_and_queue(self, view: StepView, values: Values) -> None:
        """Log the metrics of a step, and queue them for `accumulate`."""
        for name, value in values.items():
            view.log(name, value)
        if values:
            self.queue(values)

    def queue(self, values: Values) -> None:
        """Queue the metrics of a step. `accumulate` gets them as numbers at the next row."""
        self._pending.append(values)
        if len(self._pending) >= _PACK_EVERY:
            self._pack()

    def _pack(self) -> None:
        """Pack pending metrics into one tensor, because even a small one takes 512 bytes."""
        pending, self._pending = [row for row in self._pending if row], []
        if pending:
            values = _packed([value for row in pending for value in row.values()])
            self._packed.append(([list(row) for row in pending], values))

    def flush(self) -> None:
        """Pass all queued metrics to `accumulate`. This waits for the device if there are any."""
        self._pack()
        packed, self._packed = self._packed, []
        for rows, values in packed:
            numbers = iter(values.tolist())
            for names in rows:
                self.accumulate({name: next(numbers) for name in names})

    def summary(self) -> dict[str, float]:
        """Return the run's metrics, keyed by name, except those without any finite value."""
        self.flush()
        return {
            name: peak if name.split("/")[0] in self.largest else total / count
            for name, (total, count, peak) in self._totals.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is needed to resume a run."""
        self.flush()
        return deepcopy({name: getattr(self, name) for name in ("_totals", *self.remembered)})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned, and drop queued metrics."""
        self._pending, self._packed, self._measured, self._waiting = [], [], {}, {}
        for name in ("_totals", *self.remembered):
            setattr(self, name, deepcopy(state[name]))


def _joined(calls: list[ModuleCall]) -> ModuleCall:
    """Concatenate the calls for one batch into one call, along positions."""
    last = calls[-1]
    if len(calls) == 1:
        return last
    values, real = zip(*(call.input for call in calls), strict=True)
    args = torch.cat(values, 1), Tokens(torch.cat(real, 1))
    return ModuleCall(last.site, last.module, args, None)


def all_by_site(by_site: Mapping[str, Values], *, largest: Collection[str] = ()) -> Values:
    """Return every metric per site and for the whole model.

    The value for the model is the mean over sites, or the maximum for metrics in `largest`.
    """
    result: dict[str, Tensor] = {}
    for metric in dict.fromkeys(metric for values in by_site.values() for metric in values):
        values = {f"{metric}/{site}": of[metric] for site, of in by_site.items() if metric in of}
        together = torch.stack(list(values.values()))
        whole = together.max() if metric in largest else together.mean()
        result |= {metric: whole, **dict(zip(values, together, strict=True))}
    return result


class ProbeGroup:
    """The probes of a run, keyed by their name in the config (`observe.probe.<name>`)."""

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        """Create the group. Probes are called in the order of `probes`."""
        self.probes = dict(probes)
        self._latest: dict[str, Metric] = {}
        self._recent: deque[dict[str, Metric]] = deque(maxlen=RECENT)

    def attach(self, model: nn.Module) -> None:
        """Attach each probe to the model as built, before it is wrapped and compiled."""
        for probe in self.probes.values():
            probe.attach(model)

    @property
    def notice(self) -> str:
        """A line that lists the probes that do not apply to the model, and why; "" if all apply."""
        listed = [f"{name} ({x.why_not})" for name, x in self.probes.items() if x.why_not]
        return f"probes that do not apply: {'; '.join(listed)}" if listed else ""

    def before_forward(self, step: int) -> None:
        """Let the probes that measure this step start measuring."""
        for _, probe in self._due(step):
            probe.before_forward(step)

    def before_update(self, view: StepView) -> None:
        """Pass a step to the probes that measure it, before the optimizer's update."""
        row = {"train/loss": view.loss, "train/grad_norm": view.grad_norm, "train/lr": view.lr}
        self._recent.append({"step": view.step, **row})
        self._show(view, lambda probe: probe.before_update)

    def after_update(self, view: StepView) -> None:
        """Pass a step to the probes that measure it, after the optimizer's update."""
        self._show(view, lambda probe: probe.after_update)

    def _due(self, step: int) -> list[tuple[str, Probe]]:
        return [(name, probe) for name, probe in self.probes.items() if step % probe.every == 0]

    @torch.no_grad()
    def _show(self, view: StepView, hook: Callable[[Probe], Callable[[StepView], None]]) -> None:
        collected: dict[str, Metric] = {}
        for name, probe in self._due(view.step):
            hook(probe)(replace(view, prefix=f"{PROBE_PREFIX}/{name}", collected=collected))
        self._latest |= collected
        # Functions are left out: they are called later, and would describe a later step.
        self._recent[-1] |= {k: v for k, v in collected.items() if not callable(v)}

    def metrics(self) -> dict[str, float]:
        """Return the last value of each metric logged since the previous call of this method.

        This also converts to numbers all values that the probes keep on the device.
        """
        self.flush()
        latest, self._latest = self._latest, {}
        return as_floats(latest)

    def flush(self) -> None:
        """Convert the queued metrics and the values of the last steps to numbers."""
        for probe in self.probes.values():
            probe.flush()
        numbered = {(i, k): v for i, row in enumerate(self._recent) for k, v in row.items()}
        for (i, k), number in as_floats(numbered).items():
            self._recent[i][k] = number

    def recent(self) -> dict[str, list[float | None]]:
        """Return the last `RECENT` steps as columns. Metrics that were not measured are None."""
        self.flush()
        rows = [as_floats(row) for row in self._recent]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    def summary(self) -> dict[str, float]:
        """Return the run's metrics of all probes, named `stability/<probe>/<name>`."""
        return {
            f"{PROBE_PREFIX}/{name}/{key}": float(value)
            for name, probe in self.probes.items()
            for key, value in probe.summary().items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each probe, the metrics for the next row, and the last steps."""
        self.flush()
        return {
            "probes": {name: probe.state_dict() for name, probe in self.probes.items()},
            "latest": as_floats(self._latest),
            "recent": [dict(row) for row in self._recent],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned. A probe that is not in it starts empty."""
        for name, probe in self.probes.items():
            if name in state["probes"]:
                probe.load_state_dict(state["probes"][name])
        self._latest = dict(state["latest"])
        self._recent.clear()
        self._recent.extend(dict(row) for row in state["recent"])


def as_floats(metrics: Mapping[Key, Metric]) -> dict[Key, float]:
    """Return metrics as numbers. All tensors leave the device in one transfer."""
    values = {name: value() if callable(value) else value for name, value in metrics.items()}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    numbers = dict(zip(tensors, to_floats(list(tensors.values())), strict=True))
    return {name: float(numbers.get(name, value)) for name, value in values.items()}


def to_floats(values: list[Tensor]) -> list[float]:
    """Move one-element tensors to the host in one transfer, as float64."""
    if not values:
        return []
    return _packed(values).tolist()


def _packed(values: list[Tensor]) -> Float[Tensor, " n"]:
    """Return one-element tensors as one tensor in float64, on the device of the first."""
    device = values[0].device
    return torch.stack([value.detach().reshape(()).double().to(device) for value in values])
