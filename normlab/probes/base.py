"""What a probe is: a read-only observer of the training loop, and the group that runs several.

A probe sees each update twice, before and after the optimizer step, through a `StepView`. It may
read the model, its gradients and the step's figures; it never changes parameters, buffers,
gradients or a random state, and it never runs the model (a second training-mode forward would move
batch norm's running statistics). Ten steps with all probes and with none are bitwise equal.

Figures stay on the device until somebody needs them as numbers: `ProbeGroup.metrics` and
`Series` transfer many at once, so that observing does not make a GPU wait at every step.
"""

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

PREFIX = "stability"
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
    """Observe a run; override what the probe needs, each hook does nothing by default."""

    def __init__(self, *, every: int = 1) -> None:
        """Look at each `every`-th update."""
        if every < 1:
            raise ValueError(f"every: {every} is not a positive number of steps")
        self.every = every

    def attach(self, model: nn.Module) -> None:  # noqa: B027 - optional hook
        """Look over `model` once before training, or put read-only hooks on it."""

    def before_update(self, view: StepView) -> None:  # noqa: B027 - optional hook
        """See a step whose gradients are complete and clipped, before the optimizer uses them."""

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

    def attach(self, model: nn.Module) -> None:
        """Attach each probe to the model as the task built it, not wrapped and not compiled."""
        for probe in self.probes.values():
            probe.attach(model)

    def before_update(self, view: StepView) -> None:
        """Show the step to the probes whose turn it is, before the optimizer's update."""
        self._call(view, lambda probe: probe.before_update)

    def after_update(self, view: StepView) -> None:
        """Show the step to the probes whose turn it is, after the optimizer's update."""
        self._call(view, lambda probe: probe.after_update)

    @torch.no_grad()
    def _call(self, view: StepView, hook: Callable[[Probe], Callable[[StepView], None]]) -> None:
        for name, probe in self.probes.items():
            if view.step % probe.every == 0:
                named = replace(view, prefix=f"{PREFIX}/{name}", collected=self._latest)
                hook(probe)(named)

    def metrics(self) -> dict[str, float]:
        """Return and forget the last value of each metric logged since the last call."""
        latest, self._latest = self._latest, {}
        tensors = {name: value for name, value in latest.items() if isinstance(value, Tensor)}
        figures = dict(zip(tensors, to_floats(list(tensors.values())), strict=True))
        for name, value in latest.items():
            if not isinstance(value, Tensor):
                figures[name] = float(value() if callable(value) else value)
        return {name: figures[name] for name in latest}

    def summary(self) -> dict[str, float]:
        """Return each probe's figures of the run under `stability/<probe>/<name>`."""
        return {
            f"{PREFIX}/{name}/{key}": float(value)
            for name, probe in self.probes.items()
            for key, value in probe.summary().items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each probe by name."""
        return {name: probe.state_dict() for name, probe in self.probes.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the probes named in `state`; one that is new to the run starts afresh."""
        for name, probe in self.probes.items():
            if name in state:
                probe.load_state_dict(state[name])


def to_floats(values: list[Tensor]) -> list[float]:
    """Move one-element tensors to the host in one transfer, as float64."""
    if not values:
        return []
    return torch.stack([value.detach().reshape(()).to(torch.float64) for value in values]).tolist()


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
