"""What a probe is: a read-only observer of the training loop, and the group that runs several.

A probe sees each update twice, before and after the optimizer step, through a `StepView`. It may
read the model, its gradients and the step's figures, and through forward hooks what the modules
compute; it never changes parameters, buffers, gradients or a random state, and it never runs the
model (a second training-mode forward would move batch norm's running statistics). Ten steps with
all probes and with none are bitwise equal. With accumulation a hook sees every micro-batch and the
probe speaks of the last one; each process speaks of its own batches.

Figures stay on the device until somebody needs them as numbers: `ProbeGroup.metrics` and
`Series` transfer many at once, so that observing does not make a GPU wait at every step.
"""

from abc import ABC
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

PREFIX = "stability"
RECENT = 50  # steps that are kept for the record of a run that diverges
Metric = Tensor | float | int | Callable[[], float]


@dataclass(frozen=True)
class StepView:
    """What probes see of one update.

    `step` counts updates from 1. `loss` is the mean per target token over the step's micro-batches
    and all ranks, detached, in a tensor of its own that nobody writes into later; so is
    `grad_norm`, the norm of the whole gradient before clipping. `tokens` are the real target tokens
    of the step over all ranks; `padding_share` is the share of the batch's positions (source and
    target) that are padding, from 0 to 1.
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
        """Collect a metric under `stability/<probe>/<name>`.

        A tensor has one element; a function is asked only when the row is written, so that what
        needs a transfer from the device happens once a log step.
        """
        self.collected[f"{self.prefix}/{name}"] = value


class Probe(ABC):  # noqa: B024 - no hook is one that every probe needs
    """Observe a run; override what the probe needs, each hook does nothing by default.

    `why_not` is why the probe does not apply to the model that it was attached to, and so has no
    figures; empty where it does.
    """

    why_not: str = ""

    def __init__(self, *, every: int = 1) -> None:
        """Look at each `every`-th update."""
        if every < 1:
            raise ValueError(f"every: {every} is not a positive number of steps")
        self.every = every

    def attach(self, model: nn.Module) -> None:  # noqa: B027 - optional hook
        """Look over `model` once before training, or put read-only hooks on it."""

    def before_forward(self, step: int) -> None:  # noqa: B027 - optional hook
        """Learn that the forward passes of a step to look at begin."""

    def before_update(self, view: StepView) -> None:  # noqa: B027 - optional hook
        """See a step whose gradients are complete and not clipped, before the optimizer."""

    def after_update(self, view: StepView) -> None:  # noqa: B027 - optional hook
        """See the step after the optimizer has moved the parameters."""

    def summary(self) -> dict[str, float]:
        """Return the figures of the whole run, by name without prefix."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs, in plain Python values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - optional hook
        """Continue from the state that `state_dict` gave."""


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
        self._recent.append(
            {
                "step": view.step,
                "train/loss": view.loss,
                "train/grad_norm": view.grad_norm,
                "train/lr": view.lr,
            }
        )
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
        """Return the last `RECENT` steps as columns, None where nobody looked.

        They are `step`, the step's loss, gradient norm and rate under their names in the log, and
        what probes logged.
        """
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
    tensors = {name: value for name, value in metrics.items() if isinstance(value, Tensor)}
    figures = dict(zip(tensors, to_floats(list(tensors.values())), strict=True))
    for name, value in metrics.items():
        if not isinstance(value, Tensor):
            figures[name] = float(value() if callable(value) else value)
    return {name: figures[name] for name in metrics}


def to_floats(values: list[Tensor]) -> list[float]:
    """Move one-element tensors to the host, those of a device in one transfer, as float64."""
    found = [0.0] * len(values)
    for device in dict.fromkeys(value.device for value in values):
        numbers = [number for number, value in enumerate(values) if value.device == device]
        there = torch.stack([values[number].detach().reshape(()).double() for number in numbers])
        for number, figure in zip(numbers, there.tolist(), strict=True):
            found[number] = figure
    return found


class Series:
    """One figure a step, kept on the device and handed on as floats `flush_every` at a time."""

    def __init__(self, consume: Callable[[float], None], *, flush_every: int = 32) -> None:
        """Hand each value, in order, to `consume`."""
        self._consume = consume
        self._flush_every = flush_every
        self._pending: list[Tensor] = []

    def append(self, value: Float[Tensor, ""]) -> None:
        """Take the figure of one step."""
        self._pending.append(value.detach())
        if len(self._pending) >= self._flush_every:
            self.flush()

    def flush(self) -> None:
        """Hand over what is pending; call it before reading figures."""
        pending, self._pending = self._pending, []
        for value in to_floats(pending):
            self._consume(value)
