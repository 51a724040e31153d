"""What a norm costs: alone, in training and in evaluation, and in a model.

All candidates are kept side by side and take turns. A translation model reads sentences; a model of
pictures names their classes, and takes steps of training. The input of a norm alone is a batch of
sequences of unequal length, so that norms with masks have something to mask, or dense as pictures
are, in the shape of the first norm of their model.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from normlab.bench.clock import Clock
from normlab.bench.spread import spread
from normlab.bench.train import start
from normlab.build import build_model, build_task, make_fast
from normlab.instantiate import instantiate
from normlab.models.folding import fold
from normlab.norms.base import Norm, Stream, running_norms
from normlab.tasks.base import Task
from normlab.tasks.pictures import Classification
from normlab.tasks.translation import Translation
from normlab.train.runtime import Runtime

TRAINING, EVALUATION = "alone, training", "alone, evaluation"
STEP = "model, training step"
COMPILED = ", compiled"
FOLDED = " folded"
"""Behind a candidate's name: its norms are inside the products beside them, where they can be."""
Configs = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Shape:
    """The input of a norm by itself: sequences, positions, features; `dense` without padding."""

    sequences: int = 32
    positions: int = 64
    features: int = 512
    dense: bool = False

    def __str__(self) -> str:
        return f"{self.sequences} x {self.positions} x {self.features}"


@dataclass
class Candidate:
    """Something that is timed again and again."""

    name: str
    call: Callable[[], object]
    seconds: list[float] = field(default_factory=list)


def alone(
    nodes: Mapping[str, Mapping[str, Any]], shape: Shape, runtime: Runtime
) -> dict[str, list[Candidate]]:
    """Return norms by themselves, of their nodes: training is forward and backward."""
    generator = torch.Generator().manual_seed(1)
    size = (shape.sequences, shape.positions, shape.features)
    values = torch.randn(size, generator=generator).to(runtime.device)
    lengths = torch.randint(
        shape.positions // 2, shape.positions + 1, size[:1], generator=generator
    )
    valid = (torch.arange(shape.positions) < lengths[:, None]).to(runtime.device)
    stream = Stream() if shape.dense else Stream(valid)
    found: dict[str, list[Candidate]] = {TRAINING: [], EVALUATION: []}
    for name, node in nodes.items():
        for kind, candidates in found.items():
            norm = instantiate(node, "norm", Norm, dim=shape.features)
            norm = norm.to(runtime.device).train(kind == TRAINING)
            step = _step if kind == TRAINING else _look
            candidates.append(Candidate(name, step(norm, values, stream)))
    return found


def _step(norm: Norm, values: Tensor, stream: Stream) -> Callable[[], object]:
    x = values.clone().requires_grad_()
    upstream = torch.randn(values.shape, generator=torch.Generator().manual_seed(2)).to(values)

    def call() -> None:
        x.grad = None
        norm(x, stream).backward(upstream)

    return call


def _look(norm: Norm, values: Tensor, stream: Stream) -> Callable[[], object]:
    def call() -> Tensor:
        with torch.no_grad():
            return norm(values, stream)

    return call


def plan(
    configs: Configs, runtime: Runtime, *, compiled: bool = False
) -> tuple[Shape, dict[str, list[Candidate]]]:
    """Return the shape of a norm alone, and all that is to be timed, by groups.

    A candidate whose name ends with `FOLDED` has its norms folded, and takes no step. `compiled`
    times the models once more with their layers compiled (`observe.fast`).

    Raises ValueError for a task that has neither translations nor pictures.
    """
    first = next(iter(configs.values()))
    task = build_task(first)
    if not isinstance(task, Translation | Classification):
        raise ValueError(
            f"task={first['choices']['task']}: translation and pictures are timed; "
            "`normlab bench train --norms ln,bn task=lm` times steps of the others"
        )
    if isinstance(task, Classification):
        shape, unit = _first_shape(first, task), "picture"
    else:
        shape, unit = Shape(features=first["model"]["dim"]), "sentence"
    whole = {name: config for name, config in configs.items() if not name.endswith(FOLDED)}
    groups = alone({name: config["norm"] for name, config in whole.items()}, shape, runtime)
    for fast in (False, True) if compiled else (False,):
        suffix = COMPILED if fast else ""
        if unit == "picture":
            groups[STEP + suffix] = [
                Candidate(name, _training_step(name, config, runtime, compiled=fast))
                for name, config in whole.items()
            ]
        for count in (1, 32):
            group = f"model, {count} {unit}{'s' if count > 1 else ''}{suffix}"
            groups[group] = in_a_model(configs, runtime, count=count, compiled=fast)
    return shape, groups


def folds(config: Mapping[str, Any]) -> bool:
    """Tell whether norms of a model can be folded into its products at all."""
    return bool(fold(build_model(config, build_task(config)).eval()))


def _first_shape(config: Mapping[str, Any], task: Classification) -> Shape:
    """Return what the first norm of a model of pictures is called with."""
    model = build_model(config, task).eval()
    seen: list[torch.Size] = []
    norms = (module for module in model.modules() if isinstance(module, Norm))
    next(norms).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    with torch.no_grad():
        task.logits(model, task.batch("valid", range(32)))
    return Shape(*seen[0], dense=True)


def _training_step(
    name: str, config: Mapping[str, Any], runtime: Runtime, *, compiled: bool
) -> Callable[[], object]:
    observe = {**config["observe"], "fast": compiled, "probe": {}}
    return start(name, {**config, "observe": observe}, runtime).step


def in_a_model(
    configs: Configs, runtime: Runtime, *, count: int, compiled: bool = False
) -> list[Candidate]:
    """Return models with these norms, each reading so many sentences or pictures once."""
    return [
        Candidate(name, _model(name, config, runtime, count, compiled=compiled))
        for name, config in configs.items()
    ]


def _model(
    name: str, config: Mapping[str, Any], runtime: Runtime, count: int, *, compiled: bool
) -> Callable[[], object]:
    task = build_task(config)
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype).eval()
    for norm in running_norms(model):  # values that a trained norm might have
        mean, var = norm.running_moments()
        var = torch.empty_like(var).uniform_(0.5, 2.0)
        norm.enter(slice(len(mean)), mean.clone(), var, torch.ones_like(mean))
    if name.endswith(FOLDED):
        fold(model)
    if compiled:
        make_fast(model, task, runtime.device)
    read = _reading(task, model, runtime, count)

    def call() -> Tensor:
        with torch.no_grad(), runtime.autocast():
            return read()

    return call


def _reading(task: Task, model: nn.Module, runtime: Runtime, count: int) -> Callable[[], Tensor]:
    """Return the forward pass of sentences of middle length, or of pictures."""
    program = task.program(model)
    assert program is not None, "translation and pictures have one"
    order = task.lengths("valid").sum(1).argsort(kind="stable")
    middle = (len(order) - count) // 2
    batch = task.batch("valid", order[middle : middle + count].tolist()).to(runtime.device)
    given = program.given(batch)
    return lambda: program(*given)


def measure(
    groups: Mapping[str, Sequence[Candidate]], runtime: Runtime, *, rounds: int, seconds: float
) -> dict[str, Any]:
    """Time all candidates in turns and return the figures as plain values.

    Each turn of a candidate lasts about `seconds`; its figure is the mean of its calls.
    """
    clock = Clock(runtime.device)
    calls: dict[int, int] = {}
    for candidate in (each for group in groups.values() for each in group):
        candidate.call()
        calls[id(candidate)] = _calls_lasting(seconds, candidate, clock)
    for turn in range(rounds):
        for group in groups.values():
            for candidate in group if turn % 2 == 0 else reversed(group):
                candidate.seconds.append(_seconds(candidate, calls[id(candidate)], clock))
    return {
        "format": "normlab.bench.norms/1",
        "environment": runtime.environment(),
        "groups": {
            name: [_figures(candidate, group[0]) for candidate in group]
            for name, group in groups.items()
        },
    }


def _calls_lasting(seconds: float, candidate: Candidate, clock: Clock) -> int:
    """Return how many calls last about `seconds`.

    Under a limit of processor time (`ulimit -t`) the system counts it by ticks of milliseconds, and
    a few calls may last none: there are more of them until the clock has gone on.
    """
    calls = 3
    while (spent := calls * _seconds(candidate, calls, clock)) < seconds / 10:
        calls *= 2
    return max(1, round(calls * seconds / spent))


def _seconds(candidate: Candidate, calls: int, clock: Clock) -> float:
    clock.restart()
    for _ in range(calls):
        candidate.call()
    return clock.read().busy / calls


def _figures(candidate: Candidate, first: Candidate) -> dict[str, Any]:
    pairs = zip(candidate.seconds, first.seconds, strict=True)
    ratios = [own / other for own, other in pairs]
    return {
        "name": candidate.name,
        "milliseconds": spread([1000 * each for each in candidate.seconds]),
        "ratios_to_first": ratios,
        "ratio_to_first": statistics.median(ratios),
    }
