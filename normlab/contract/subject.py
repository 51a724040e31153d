"""A norm under examination: new ones of it, the batches it is given, and what was found."""

import contextlib
import copy
import inspect
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.norms.base import Norm, Stream
from normlab.norms.model import ModelNorms

STEPS = 12  # of a run in which every schedule comes to its end
_WIDTHS = (16, 64, 512)
_LENGTHS = (6, 2, 4, 5)
_ROUNDING = 1e-9  # of float64, far above what the order of sums explains

Status = Literal["ok", "violated", "does not apply"]


@dataclass(frozen=True)
class Verdict:
    """What a check found, with one sentence on it."""

    status: Status
    text: str


def ok(text: str) -> Verdict:
    """Return that the norm keeps the contract."""
    return Verdict("ok", text)


def violated(text: str) -> Verdict:
    """Return that it does not, what was seen and what to do."""
    return Verdict("violated", text)


def exempt(why: str) -> Verdict:
    """Return that there is nothing to check, and why."""
    return Verdict("does not apply", why)


class Subject:
    """A norm under examination, as new and as trained, a copy of it each time."""

    def __init__(self, build: Callable[[int], Norm]) -> None:
        """Build it at the first width that it can be made of; raises what the last one raises."""
        self._made = _first_made(build)
        self._trained: dict[int, Norm] = {}

    @property
    def width(self) -> int:
        """The features of a token."""
        return self._made.dim

    @property
    def file(self) -> str:
        """The file of the norm's class."""
        return inspect.getfile(type(self._made))

    def new(self, dtype: torch.dtype = torch.float64) -> Norm:
        """Return a new norm in training mode."""
        return copy.deepcopy(self._made).to(dtype).train()

    def trained(self, steps: int = STEPS) -> Norm:
        """Return a norm in training mode after the first steps of a run of `STEPS`."""
        if steps not in self._trained:
            norm = self.new()
            for number in range(1, steps + 1):
                step(norm, number)
            self._trained[steps] = norm
        return copy.deepcopy(self._trained[steps])

    def tokens(self, seed: int = 0) -> tuple[Float[Tensor, "B P D"], Stream]:
        """Return four sequences of 2 to 6 tokens, padded to 6, in float64."""
        valid = torch.arange(max(_LENGTHS)) < torch.tensor(_LENGTHS)[:, None]
        return self.values(*valid.shape, seed=seed), Stream(valid)

    def values(self, *shape: int, seed: int = 0) -> Float[Tensor, "B P D"]:
        """Return normal values of mean 2 and deviation 3 in float64, of the norm's width."""
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(*shape, self.width, generator=generator, dtype=torch.float64)
        return x * 3 + 2


def _first_made(build: Callable[[int], Norm]) -> Norm:
    for width in _WIDTHS[:-1]:
        with contextlib.suppress(ValueError), _seeded():
            return build(width)
    with _seeded():
        return build(_WIDTHS[-1])


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """Within the block, let what is drawn at random on the CPU be the same each time."""
    former = torch.get_rng_state()
    torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(former)


def forward(norm: Norm, x: Tensor, valid: Bool[Tensor, "B P"] | None = None) -> Tensor:
    """Return the output of a copy of the norm; all tokens are real unless `valid` is given."""
    valid = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
    with torch.no_grad():
        return seeded(copy.deepcopy(norm), x.clone(), Stream(valid))


def seeded(norm: Norm, x: Tensor, stream: Stream) -> Tensor:
    """Return the norm's output; what it draws at random is the same each time."""
    with _seeded():
        return norm(x, stream)


def step(norm: Norm, number: int) -> tuple[Tensor, Tensor]:
    """Train on one batch; return the output and the gradient of the input at real tokens."""
    norms = ModelNorms(nn.Sequential(norm))
    norms.begin_step(number, STEPS)
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(4, 6, norm.dim, generator=generator, dtype=torch.float64) * 3 + 2
    valid = torch.arange(6) < torch.tensor(_LENGTHS)[:, None]
    y = seeded(norm, x.requires_grad_(), Stream(valid))
    loss = (y * y.detach().cos())[valid].sum()
    price = norms.penalty()
    (loss if price is None else loss + price).backward()
    norms.commit()
    assert x.grad is not None
    return y.detach()[valid], x.grad[valid]


def moved(before: Tensor, after: Tensor) -> bool:
    """Tell whether two results differ by more than rounding, or one is not finite."""
    limit = _ROUNDING * (1 + before.abs().max())
    return not bool((before - after).abs().max() <= limit)


def state(norm: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the tensors that are saved with a norm."""
    saved = norm.state_dict().items()
    return {name: value.clone() for name, value in saved if isinstance(value, Tensor)}


def where(error: Exception, subject: Subject) -> str:
    """Return ` (file:line)` of an error's last line in the norm's own file, empty for none."""
    calls = traceback.extract_tb(error.__traceback__)
    lines = [call.lineno for call in calls if call.filename == subject.file]
    return f" ({Path(subject.file).name}:{lines[-1]})" if lines else ""
