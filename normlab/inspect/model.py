"""A model under examination: its task, what passes through it, and by how much values change.

Only this file knows the anatomy of models.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.bench.speed import runtime_of
from normlab.config.compose import compose, to_dict
from normlab.inspect.question import Finding, questions
from normlab.models.attention import AttentionCore
from normlab.models.base import Anatomy, stacks
from normlab.norms.base import Norm, RunningNorm, normalized_by, running_norms
from normlab.norms.local import NoNorm
from normlab.norms.recalibration import Tally
from normlab.placements.base import Residual
from normlab.probes.sites import real_values, sites
from normlab.records.record import plain
from normlab.tasks.base import Batch, Task
from normlab.train.build import build_model, build_task, calibrate_model
from normlab.train.loaded import load_run
from normlab.train.runtime import Runtime

FORMAT = "normlab.inspect/1"
NO_STACKS = "the model declares no stack of layers"
MODES = ("training", "eval")
ROUNDING = 1e-5
"""A relative change that the order of float32 sums explains, through some tens of layers."""


@dataclass(frozen=True)
class Subject:
    """A model at initialization or at the end of a run, with its task.

    The model is in eval mode and computes in the precision of its weights, float32 unless the
    config asks for fp64. `step` is 0 at initialization.
    """

    config: dict[str, Any]
    task: Task
    model: nn.Module
    runtime: Runtime
    run_id: str | None = None
    step: int = 0

    @property
    def seed(self) -> int:
        """The seed of the run, which also seeds what examinations draw."""
        return int(self.config["seed"])

    @property
    def stacks(self) -> dict[str, Anatomy]:
        """The stacks of the model by name."""
        return stacks(self.model)

    @property
    def norms(self) -> dict[str, Norm]:
        """The norms by place, without those that leave values as they are."""
        return {
            name: norm
            for name, norm in sites(self.model, Norm).items()
            if not isinstance(norm, NoNorm)
        }

    @property
    def has_attention(self) -> bool:
        """Whether there is a softmax over tokens."""
        return bool(sites(self.model, AttentionCore))

    @property
    def keeps_statistics(self) -> bool:
        """Whether a norm evaluates by running statistics."""
        return any(norm.eval_stats != "batch" for norm in running_norms(self.model))

    def number(self, split: str) -> int:
        """Return the number of examples of a split."""
        return len(self.task.lengths(split))

    def batch(self, split: str, indices: Sequence[int], *, padding: float = 0.0) -> Batch:
        """Return a batch of chosen examples on the device, of which a share is padding."""
        batch = self.task.batch(split, indices, padding=padding)
        return batch.to(self.runtime.device)

    def losses(self, batch: Batch, model: nn.Module | None = None) -> dict[str, Tensor]:
        """Return the summed losses of a batch, of another model where one is given."""
        return self.task.losses(self.model if model is None else model, batch)

    def generator(self, question: str) -> np.random.Generator:
        """Return the random numbers of a question, the same whatever else is asked."""
        return np.random.default_rng([self.seed, *question.encode()])


def subject_of_config(overrides: Sequence[str]) -> Subject:
    """Return the model of a config, as `normlab train` would compose it, at initialization."""
    return subject_of(to_dict(compose(overrides)))


def subject_of(config: dict[str, Any]) -> Subject:
    """Return the model of a plain config at initialization."""
    runtime, task = runtime_of(config), build_task(config)
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype)
    calibrate_model(config, model, task, runtime)
    return Subject(config, task, model.eval(), runtime)


def subject_of_run(folder: Path, changes: list[str]) -> Subject:
    """Return the model of a finished run, with the weights its test was scored with."""
    run = load_run(folder, changes)
    record = run.record
    return Subject(run.config, run.task, run.model, run.runtime, record.run_id, record.outcome.step)


def sheet(subject: Subject, findings: Mapping[str, Finding]) -> dict[str, Any]:
    """Return what `inspect.json` holds, as plain values."""
    asked = {each.name: each for each in questions("model")}
    return plain(
        {
            "format": FORMAT,
            "subject": {
                "run": subject.run_id,
                "step": subject.step,
                "seed": subject.seed,
                "config": subject.config,
                "params": sum(parameter.numel() for parameter in subject.model.parameters()),
            },
            "environment": subject.runtime.environment(),
            "data": subject.task.describe(),
            "examinations": {name: each.plain(asked[name]) for name, each in findings.items()},
        }
    )


def backward(subject: Subject, batch: Batch) -> float:
    """Return the loss of a batch, and leave its gradient in the parameters, both as in training."""
    with normalized_by(subject.model, "batch"), torch.enable_grad():
        losses = subject.losses(batch)
        loss = torch.stack([losses[name] / batch.counts[name] for name in sorted(losses)]).sum()
        loss.backward()
    return float(loss.detach())


class Values(NamedTuple):
    """Values of a stream, and which positions are real."""

    all: Float[Tensor, "B P D"]
    valid: Bool[Tensor, "B P"]

    @property
    def real(self) -> Float[Tensor, "N D"]:
        """The values at real positions."""
        return self.all[self.valid]


@dataclass
class Seen:
    """What one pass of a batch showed, in the order of the forward pass.

    Attributes:
        norms: the input of each norm, by place; the positions that a recurrence gives one at a time
            are one input.
        moments: what norms with running statistics took of the batch, by place.
        stacks: the last values of each stack (`encoder`, `decoder`).
        entered: what each stack's entry is called with, where `leaves` were asked for.
        layers: the outputs of the layers at real tokens, by names such as `encoder.0`.
        attention: what `measure` makes of each attention.
    """

    norms: dict[str, Values] = field(default_factory=dict[str, Values])
    moments: dict[str, Tally] = field(default_factory=dict[str, Tally])
    stacks: dict[str, Values] = field(default_factory=dict[str, Values])
    entered: dict[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    layers: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    attention: dict[str, Any] = field(default_factory=dict[str, Any])


Measure = Callable[[Tensor, Tensor, Tensor | None, Bool[Tensor, "B P"] | None], Any]
Enter = Callable[[str, Tensor], Tensor]


def taking(model: nn.Module, mode: str) -> AbstractContextManager[None]:
    """Let norms take the batch's statistics (`training`), or those of evaluation (`eval`)."""
    return normalized_by(model, "batch") if mode == "training" else nullcontext()


def look(subject: Subject, batch: Batch, mode: str = "eval", **watching: Any) -> Seen:
    """Run a batch in a mode and return what was seen; `watching` as `watched` takes it."""
    with taking(subject.model, mode), watched(subject.model, **watching) as seen:
        subject.losses(batch)
    return seen


@contextmanager
def watched(
    model: nn.Module,
    *,
    measure: Measure | None = None,
    enter: Enter = lambda _, x: x,
    leaves: bool = False,
) -> Iterator[Seen]:
    """Collect what a pass through the model shows.

    `measure` is given query, key, visible and real positions of each attention. `enter` may replace
    the first values of a stack: it is given the stack's name and the values. `leaves` puts leaves
    of the graph at each stack's entry, before the norm on embedded tokens (it may leak too).
    """
    seen, queries = Seen(), dict[str, Tensor]()

    def passed(name: str, given: tuple[Any, ...], y: Tensor) -> None:
        x, stream = given
        found = Values(x, stream.real(y))
        earlier = seen.norms.pop(name, None)
        if earlier is not None and stream.start == earlier.valid.shape[1]:
            found = Values(*(torch.cat(pair, 1) for pair in zip(earlier, found, strict=True)))
        seen.norms[name] = found

    def leaf(name: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
        seen.entered[name] = (given[0].detach().requires_grad_(), *given[1:])
        return seen.entered[name]

    def begun(name: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (enter(name, given[0]), *given[1:])

    def ended(name: str, given: tuple[Any, ...], y: Tensor) -> None:
        seen.stacks[name] = Values(*real_values(y, given))

    def layer(name: str, given: tuple[Any, ...], y: Tensor) -> None:
        seen.layers[name] = Values(*real_values(y, given)).real

    def query(name: str, given: tuple[Any, ...]) -> None:
        queries[name] = given[1].real(given[0])

    def attention(name: str, given: tuple[Any, ...]) -> None:
        assert measure is not None
        seen.attention[name] = measure(given[0], given[1], given[3], queries.get(name))

    with ExitStack() as hooks:

        def before(module: nn.Module, act: Callable[..., Any], name: str) -> None:
            hook = module.register_forward_pre_hook(lambda _, given: act(name, given))
            hooks.callback(hook.remove)

        def after(module: nn.Module, act: Callable[..., None], name: str) -> None:
            hook = module.register_forward_hook(lambda _, given, y: act(name, given, y))
            hooks.callback(hook.remove)

        norms, residuals = sites(model, Norm), sites(model, Residual)
        for name, norm in norms.items():
            after(norm, passed, name)
            if isinstance(norm, RunningNorm):
                seen.moments[name] = Tally(norm)
                hooks.callback(norm.watch(seen.moments[name].add))
        for name, stack in stacks(model).items():
            if leaves:
                before(stack.entry, leaf, name)
            before(stack.first, begun, name)
            after(stack.last, ended, name)
            for number, block in enumerate(stack.blocks):
                after(block, layer, f"{name}.{number}")
        for name, core in sites(model, AttentionCore).items() if measure else ():
            if name in residuals:
                before(residuals[name], query, name)
            before(core, attention, name)
        yield seen


def rms(values: Float[Tensor, "..."]) -> float:
    """Return the root mean square, taken in float64; 0 of nothing."""
    wide = values.double()
    return float(torch.linalg.vector_norm(wide)) / math.sqrt(max(wide.numel(), 1))


def over(part: float, whole: float) -> float:
    """Return a quotient of sizes: 0 where both are 0, infinity over 0 alone."""
    if whole == 0:
        return 0.0 if part == 0 else math.inf
    return part / whole


def movement(values: Float[Tensor, "*any"], base: Float[Tensor, "*any"]) -> float:
    """Return RMS(values - base) / RMS(base)."""
    return over(rms(values - base), rms(base))


def deviation(values: Sequence[Float[Tensor, "*any"]]) -> float:
    """Return the RMS over sets of the deviation from their mean, over the RMS of all values."""
    wide = torch.stack(list(values)).double()
    return over(rms(wide - wide.mean(0)), rms(wide))


def by_how_much(share: float) -> str:
    """Put a relative change into words: `by 12.3 %`, or `not at all`."""
    if share == 0:
        return "not at all"
    if share < ROUNDING:
        return "not at all (rounding)"
    return f"by {percent(share)}"


def percent(share: float) -> str:
    """Return a share in percent with three significant digits: `0.0123 %`, `12.3 %`, `123 %`."""
    if not math.isfinite(share):
        return f"{share} %"
    rounded = float(f"{100 * share:.2e}")  # so that 99.9999 has the places of 100
    places = 2 if share == 0 else max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{100 * share:.{places}f} %"
