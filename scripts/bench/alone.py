"""Times bare norms in training and in evaluation; the norms take turns."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from normlab.config.instantiation import instantiate
from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.training.runtime import Runtime
from normlab.training.speed import StepClock, spread

TRAINING, EVALUATION = "alone, training", "alone, evaluation"


@dataclass(frozen=True)
class Shape:
    """The input of a bare norm: sequences, positions, features; `dense` means no padding."""

    sequences: int = 32
    positions: int = 64
    features: int = 512
    dense: bool = False

    def __str__(self) -> str:
        return f"{self.sequences} x {self.positions} x {self.features}"


@dataclass
class Candidate:
    """A call that is timed several times."""

    name: str
    call: Callable[[], object]
    seconds: list[float] = field(default_factory=list)


def alone(
    nodes: Mapping[str, Mapping[str, Any]], shape: Shape, runtime: Runtime
) -> dict[str, list[Candidate]]:
    """Return bare norms, built from config nodes; training is a forward and a backward pass."""
    generator = torch.Generator().manual_seed(1)
    size = (shape.sequences, shape.positions, shape.features)
    values = torch.randn(size, generator=generator).to(runtime.device)
    lengths = torch.randint(
        shape.positions // 2, shape.positions + 1, size[:1], generator=generator
    )
    valid = (torch.arange(shape.positions) < lengths[:, None]).to(runtime.device)
    tokens = Tokens() if shape.dense else Tokens(valid)
    upstream = torch.randn(size, generator=torch.Generator().manual_seed(2)).to(values)
    found: dict[str, list[Candidate]] = {TRAINING: [], EVALUATION: []}
    for name, node in nodes.items():
        for kind, candidates in found.items():
            norm = instantiate(node, "norm", Norm, dim=shape.features)
            norm = norm.to(runtime.device).train(kind == TRAINING)
            grad = upstream if kind == TRAINING else None
            candidates.append(Candidate(name, _call(norm, values, tokens, grad)))
    return found


def _call(norm: Norm, values: Tensor, tokens: Tokens, grad: Tensor | None) -> Callable[[], object]:
    x = values.clone().requires_grad_(grad is not None)

    def call() -> Tensor:
        x.grad = None
        with torch.set_grad_enabled(grad is not None):
            y = norm(x, tokens)
        if grad is not None:
            y.backward(grad)
        return y

    return call


def measure(
    groups: Mapping[str, Sequence[Candidate]], runtime: Runtime, *, rounds: int, seconds: float
) -> dict[str, Any]:
    """Time all candidates in turns of about `seconds`; return means per call as plain values."""
    clock = StepClock(runtime.device)
    everyone = [each for group in groups.values() for each in group]
    calls = {id(each): _calls_lasting(seconds, each, clock) for each in everyone}
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


def _calls_lasting(seconds: float, candidate: Candidate, clock: StepClock) -> int:
    """Return how many calls take about `seconds`.

    Under a limit of processor time (`ulimit -t`) the clock ticks in milliseconds, so a few calls
    may seem to take no time: double their number until the clock has moved.
    """
    candidate.call()
    calls = 3
    while (spent := calls * _seconds(candidate, calls, clock)) < seconds / 10:
        calls *= 2
    return max(1, round(calls * seconds / spent))


def _seconds(candidate: Candidate, calls: int, clock: StepClock) -> float:
    clock.restart()
    for _ in range(calls):
        candidate.call()
    return clock.read().busy / calls


def _figures(candidate: Candidate, first: Candidate) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(candidate.seconds, first.seconds, strict=True)]
    return {
        "name": candidate.name,
        "milliseconds": spread([1000 * each for each in candidate.seconds]),
        "ratios_to_first": ratios,
        "ratio_to_first": statistics.median(ratios),
    }
