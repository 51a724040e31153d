"""The stream that a tensor belongs to: which of its tokens are real, and where it stands."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from normlab.norms.moments import Weights


@dataclass(frozen=True)
class Stream:
    """The token stream a tensor belongs to: which tokens are real, and where the first stands.

    `valid` is None where all are, as the pixels of a picture: the stream is dense. `start` is the
    position of the first column, above 0 only in incremental decoding.
    """

    valid: Bool[Tensor, "B P"] | None = None
    start: int = 0

    @property
    def dense(self) -> bool:
        """Whether every token is real, of whatever tensor."""
        return self.valid is None

    def real(self, x: Shaped[Tensor, "B P *_"]) -> Bool[Tensor, "B P"]:
        """Return which tokens of `x` are real."""
        if self.valid is None:
            return torch.ones((), dtype=torch.bool, device=x.device).expand(x.shape[:2])
        return self.valid

    def known_tokens(self, x: Shaped[Tensor, "B P *_"]) -> int | None:
        """Return how many tokens of `x` are real; None where that would have to be waited for."""
        if self.valid is None:
            return x.shape[0] * x.shape[1]
        if not self.valid.is_cpu or torch.compiler.is_compiling():
            return None
        return self._tokens

    @cached_property
    def _tokens(self) -> int:
        return int(self.valid.sum()) if self.valid is not None else 0

    @property
    def keys(self) -> Bool[Tensor, "B 1 1 P"] | None:
        """Which tokens every query of every head may look at; None for all."""
        return None if self.valid is None else self.valid[:, None, None, :]

    def repeated(self, times: int) -> "Stream":
        """Return the stream of a tensor whose rows each stand there so often in a row."""
        if self.valid is None:
            return self
        return Stream(self.valid.repeat_interleave(times, dim=0), start=self.start)

    def picked(self, rows: Int[Tensor, "R"]) -> "Stream":
        """Return the stream of some rows."""
        return self if self.valid is None else Stream(self.valid[rows], start=self.start)


def real_tokens(stream: Stream, x: Tensor) -> Weights:
    """Return what pools the real tokens of `x`, and nothing else."""
    real = stream.real(x).unsqueeze(-1).float()
    return Weights(real, known=stream.known_tokens(x), dense=stream.dense)
