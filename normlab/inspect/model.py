"""A model under examination: its task, what passes through it, and by how much values change.

Only this file knows the anatomy of models.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.config import compose, to_dict
from normlab.inspect.question import Finding, questions
from normlab.inspect.subject import Norm, acts, batch_statistics
from normlab.models.attention import AttentionCore
from normlab.models.base import Anatomy, stacks
from normlab.placements.base import Residual
from normlab.probes.sites import real_values, sites
from normlab.records.canonical import plain
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
        return {name: norm for name, norm in sites(self.model, Norm).items() if acts(norm)}

    @property
    def has_attention(self) -> bool:
        """Whether there is a softmax over tokens."""
        return bool(sites(self.model, AttentionCore))

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
    runtime = Runtime.start(
        device=config["device"],
        precision=config["precision"],
        threads=config["observe"]["threads"],
    )
    task = build_task(config)
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
    asked = {each.name: each for each in questions("model", list(findings))}
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


def mean_loss(subject: Subject, batch: Batch) -> Float[Tensor, ""]:
    """Return the loss of a batch as a step of training has it: each sum over its count, added."""
    losses = subject.losses(batch)
    return torch.stack([losses[name] / batch.counts[name] for name in sorted(losses)]).sum()


def backward(subject: Subject, batch: Batch) -> float:
    """Return the loss of a batch, and leave its gradient in the parameters (as in training)."""
    with batch_statistics(subject.model), torch.enable_grad():
        loss = mean_loss(subject, batch)
        loss.backward()
    return float(loss.detach())


@dataclass(frozen=True)
class Passage:
    """What passed a norm: its input, its output, and which tokens are real."""

    x: Float[Tensor, "B P D"]
    y: Float[Tensor, "B P D"]
    valid: Bool[Tensor, "B P"]


@contextmanager
def norms_watched(model: nn.Module) -> Iterator[dict[str, Passage]]:
    """Collect what last passed each norm, by place, in the order of the forward pass.

    The positions that a recurrence gives one at a time are one passage.
    """
    seen: dict[str, Passage] = {}

    def look_at(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def look(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
            x, stream = arguments
            found = (x, output, stream.real(output))
            before = seen.pop(name, None)
            if before is not None and stream.start == before.valid.shape[1]:
                earlier = (before.x, before.y, before.valid)
                found = tuple(torch.cat(pair, 1) for pair in zip(earlier, found, strict=True))
            seen[name] = Passage(*found)

        return look

    with ExitStack() as hooks:
        for name, norm in sites(model, Norm).items():
            hooks.callback(norm.register_forward_hook(look_at(name)).remove)
        yield seen


@dataclass
class Ends:
    """The first and the last values of a stack's stream, and which of the last are real."""

    first: Float[Tensor, "B P D"]
    valid: Bool[Tensor, "B p"]
    last: Float[Tensor, "B p F"]


@contextmanager
def stacks_watched(
    model: nn.Module, enter: Callable[[str, Tensor], Tensor] = lambda _, x: x
) -> Iterator[dict[str, Ends]]:
    """Collect the ends of each stack (`encoder`, `decoder`), by name.

    `enter` may replace the first values by others: it is given the stack's name and the values.
    """
    seen: dict[str, Ends] = {}

    def watch(name: str, stack: Anatomy) -> Iterator[Any]:
        def begun(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            entered = (enter(name, arguments[0]), *arguments[1:])
            first, valid = real_values(entered[0], entered)
            seen[name] = Ends(first=first, valid=valid, last=first)
            return entered

        def ended(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
            seen[name].last, seen[name].valid = real_values(output, arguments)

        yield stack.first.register_forward_pre_hook(begun)
        yield stack.last.register_forward_hook(ended)

    with ExitStack() as hooks:
        for name, stack in stacks(model).items():
            for handle in watch(name, stack):
                hooks.callback(handle.remove)
        yield seen


@contextmanager
def entries_watched(model: nn.Module) -> Iterator[dict[str, tuple[Any, ...]]]:
    """Put leaves of the graph at each stack's entry, and collect what it is called with by stack.

    They come before the norm on embedded tokens, which may leak like any other.
    """
    entered: dict[str, tuple[Any, ...]] = {}
    with ExitStack() as hooks:
        for name, stack in stacks(model).items():

            def enter(_: nn.Module, arguments: tuple[Any, ...], *, name: str = name) -> Any:
                leaf = arguments[0].detach().requires_grad_()
                entered[name] = (leaf, *arguments[1:])
                return entered[name]

            hooks.callback(stack.entry.register_forward_pre_hook(enter).remove)
        yield entered


@contextmanager
def layers_watched(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of the layers at real tokens, by names such as `encoder.0`."""
    seen: dict[str, Tensor] = {}
    with ExitStack() as hooks:
        for name, stack in stacks(model).items():
            for number, block in enumerate(stack.blocks):
                short = f"{name}.{number}"

                def look(
                    _: nn.Module, given: tuple[Any, ...], y: Tensor, short: str = short
                ) -> None:
                    values, real = real_values(y, given)
                    seen[short] = values[real].clone()

                hooks.callback(block.register_forward_hook(look).remove)
        yield seen


Measure = Callable[[Tensor, Tensor, Tensor | None, Bool[Tensor, "B P"] | None], Any]


@contextmanager
def attentions_watched(model: nn.Module, measure: Measure) -> Iterator[dict[str, Any]]:
    """Collect what `measure` makes of each attention: of query, key, visible and real positions."""
    seen: dict[str, Any] = {}
    queries: dict[str, Tensor] = {}
    cores, residuals = sites(model, AttentionCore), sites(model, Residual)
    with ExitStack() as hooks:
        for name, core in cores.items():

            def enter(_: nn.Module, given: tuple[Any, ...], name: str = name) -> None:
                queries[name] = given[1].real(given[0])

            def look(_: nn.Module, given: tuple[Any, ...], name: str = name) -> None:
                query, key, _, visible = given
                seen[name] = measure(query, key, visible, queries.get(name))

            if name in residuals:
                hooks.callback(residuals[name].register_forward_pre_hook(enter).remove)
            hooks.callback(core.register_forward_pre_hook(look).remove)
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


def deviation(values: Float[Tensor, "sets *any"]) -> float:
    """Return the RMS over sets of the deviation from their mean, over the RMS of all values."""
    wide = values.double()
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
    places = 2 if share == 0 else max(0, 2 - math.floor(math.log10(abs(100 * share))))
    return f"{100 * share:.{places}f} %"
