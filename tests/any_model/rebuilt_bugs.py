"""A bug that was reported in public, rebuilt as a small model with a correct twin."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import normlab
from tests.any_model.pairs import NOT_CAUSAL, WIDTH, Case


class Causal(nn.Module):
    """A language model on bytes that mixes positions with a function that should be causal."""

    def __init__(self, mix: Callable[[Tensor], Tensor]):
        super().__init__()
        self.embed, self.head, self.mix = nn.Embedding(256, WIDTH), nn.Linear(WIDTH, 256), mix

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        return self.head(x + self.mix(x))


class RebuiltBug(NamedTuple):
    """A bug, the question whose finding must have `verdict`, and text that its answer has."""

    build: Callable[[bool], Case]
    question: str
    says: str = ""
    verdict: str = "broken"


def inspected(case: Case, question: str) -> Any:
    """Return the report; `causal=False` is passed unless the question is about that."""
    options = {} if question == "future" else NOT_CAUSAL
    return normlab.inspect(case.model.eval(), case.batches, **{**options, **case.arguments})


def built(bug: RebuiltBug, faulty: bool) -> Case:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return bug.build(faulty)
