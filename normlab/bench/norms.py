"""What a norm costs: alone, in training and in evaluation, and in the forward pass of a model.

All candidates are kept side by side and take turns. The input is a batch of sequences of unequal
length, so that norms with masks have something to mask.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from normlab.bench.clock import Clock
from normlab.bench.spread import spread
from normlab.build import build_model, build_task
from normlab.instantiate import instantiate
from normlab.models.folding import fold
from normlab.models.seq2seq import Seq2Seq
from normlab.norms.base import Norm, Stream, running_norms
from normlab.tasks.translation import Translation
from normlab.train.runtime import Runtime

TRAINING, EVALUATION = "alone, training", "alone, evaluation"
FOLDED = "bn folded"
"""Not an option of `configs/norm`: batch norm inside the products beside it."""


@dataclass(frozen=True)
class Shape:
    """The input of a norm by itself: sequences, positions, features."""

    sequences: int = 32
    positions: int = 64
    features: int = 512

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
    found: dict[str, list[Candidate]] = {TRAINING: [], EVALUATION: []}
    for name, node in nodes.items():
        for kind, candidates in found.items():
            norm = instantiate(node, "norm", Norm, dim=shape.features)
            norm = norm.to(runtime.device).train(kind == TRAINING)
            step = _step if kind == TRAINING else _look
            candidates.append(Candidate(name, step(norm, values, Stream(valid))))
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


def in_a_model(
    configs: Mapping[str, Mapping[str, Any]], runtime: Runtime, *, sentences: int
) -> list[Candidate]:
    """Return models with these norms, each reading sentences and their translations once."""
    return [
        Candidate(name, _model(name, config, runtime, sentences))
        for name, config in configs.items()
    ]


def _model(
    name: str, config: Mapping[str, Any], runtime: Runtime, sentences: int
) -> Callable[[], object]:
    task = build_task(config)
    assert isinstance(task, Translation)
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype).eval()
    assert isinstance(model, Seq2Seq)
    for norm in running_norms(model):  # values that a trained norm might have
        mean, var = norm.running_moments()
        var = torch.empty_like(var).uniform_(0.5, 2.0)
        norm.enter(slice(len(mean)), mean.clone(), var, torch.ones_like(mean))
    if name == FOLDED:
        fold(model)
    order = task.lengths("valid").sum(1).argsort(kind="stable")
    middle = (len(order) - sentences) // 2
    batch = task.batch("valid", order[middle : middle + sentences].tolist()).to(runtime.device)
    source, target = Stream(batch.source_valid), Stream(batch.tgt_valid)

    def call() -> Tensor:
        with torch.no_grad(), runtime.autocast():
            return model.project(model(batch.source, source, batch.tgt_in, target))

    return call


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
        calls[id(candidate)] = max(1, round(seconds / _seconds(candidate, 3, clock)))
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
