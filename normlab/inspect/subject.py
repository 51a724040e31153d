"""A norm by itself: making, running and reading it."""

import contextlib
import copy
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
import torch.nn.functional as F
import yaml
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.config.registry import Option
from normlab.norms.base import Clock, Norm, RunningNorm
from normlab.norms.model import ModelNorms
from normlab.norms.pool import Axis, Stream
from normlab.train.build import make_norm

AXES: tuple[str, ...] = get_args(Axis)
STEPS = 12  # of a run in which every schedule comes to its end
HALF_WAY, LONG_RUN = 500, 1000  # where `explain` shows a norm that pools nothing at the start
WIDTH = 4  # of the documents' tensor
_WIDTHS = (16, 64, 512)
_LENGTHS = (6, 2, 4, 5)
_ROUNDING = 1e-9  # of float64, far above what the order of sums explains


class BareNorm:
    """A norm as new and as trained, a copy of it each time, in float64."""

    def __init__(self, build: Callable[[int], Norm]) -> None:
        """Build it at the first width that it takes; raises what the last width raises."""
        for width in _WIDTHS:
            try:
                with _seeded():
                    self._made = build(width)
                break
            except ValueError:
                if width == _WIDTHS[-1]:
                    raise
        self._trained: dict[int, Norm] = {}

    @property
    def width(self) -> int:
        """The number of features of a token."""
        return self._made.dim

    def new(self, dtype: torch.dtype = torch.float64) -> Norm:
        """Return a new norm in training mode."""
        return copy.deepcopy(self._made).to(dtype).train()

    def trained(self, steps: int = STEPS) -> Norm:
        """Return a norm in training mode after the first steps of a run of `STEPS`."""
        if steps not in self._trained:
            norm = self.new()
            for number in range(1, steps + 1):
                train_step(norm, number)
            self._trained[steps] = norm
        return copy.deepcopy(self._trained[steps])

    def tokens(self, seed: int = 0) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
        """Return four sequences of 2 to 6 tokens, padded to 6, and which tokens are real."""
        return self.values(*_VALID.shape, seed=seed), _VALID.clone()

    def values(self, *shape: int, seed: int = 0) -> Float[Tensor, "B P D"]:
        """Return normal values of mean 2 and deviation 3."""
        return normal(*shape, self.width, seed=seed)

    def line_of(self, error: Exception) -> str:
        """Return ` (file:line)` of an error's last line in the norm's own file; empty if none."""
        file = inspect.getfile(type(self._made))
        calls = traceback.extract_tb(error.__traceback__)
        lines = [each.lineno for each in calls if each.filename == file]
        return f" ({Path(file).name}:{lines[-1]})" if lines else ""


_VALID = torch.arange(max(_LENGTHS)) < torch.tensor(_LENGTHS)[:, None]


def normal(*shape: int, seed: int) -> Tensor:
    """Return normal values of mean 2 and deviation 3 in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * 3 + 2


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """Let what is drawn at random on the CPU be the same each time."""
    former = torch.get_rng_state()
    torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(former)


@dataclass(frozen=True)
class OnTable:
    """An option of `configs/norm` at the width of 4, and the values that had to change to fit it.

    `settings` are the values of its config, `allowed` the alternatives of those that name them.
    `step` is where in a run of 1000 steps it is shown, 0 for a norm that was told of no step.
    """

    option: Option
    settings: Mapping[str, Any]
    allowed: Mapping[str, tuple[str, ...]]
    changed: Mapping[str, int] = field(default_factory=dict)
    step: int = 0

    def make(self, width: int = WIDTH, **values: Any) -> Norm:
        """Return a new norm in training mode, with other values where given."""
        with _seeded():
            norm = make_norm(self.option.name, width, **{**self.changed, **values})
        if self.step:
            norm.clock = Clock(self.step, LONG_RUN)
        return norm.double().train()


def on_table(option: Option) -> OnTable:
    """Return the norm of an option at the width of 4.

    Group norm's 8 groups do not divide 4: the first whole number that fits is taken. Half the width
    is tried first, as with as many groups as features group norm would erase them. Raises what the
    norm raises where none fits.
    """
    node = yaml.safe_load(option.path.read_text(encoding="utf-8"))
    settings = {name: value for name, value in node.items() if not name.startswith("_")}
    whole = [name for name, value in settings.items() if type(value) is int]
    refused: ValueError | None = None
    for changed in ({}, *({name: n} for name in whole for n in (WIDTH // 2, WIDTH, 1))):
        try:
            norm = make_norm(option.name, WIDTH, **changed)
        except ValueError as error:
            refused = refused or error
            continue
        hints = get_type_hints(type(norm).__init__)
        choices = {name: hints[name] for name in settings if get_origin(hints.get(name)) is Literal}
        allowed = {name: tuple(map(str, get_args(hint))) for name, hint in choices.items()}
        return OnTable(option, settings, allowed, changed)
    assert refused is not None
    raise refused


def call(
    norm: Norm, x: Tensor, valid: Tensor | None = None, *, start: int = 0, dense: bool = False
) -> Tensor:
    """Return the norm's output; all tokens are real unless `valid` says otherwise.

    What the norm draws at random is the same each time. A `dense` batch says nothing of padding,
    as one of images.
    """
    if valid is None and not dense:
        valid = torch.ones(x.shape[:2], dtype=torch.bool)
    with _seeded():
        return norm(x, Stream(valid, start=start))


def run(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the norm's output without a gradient; in training its statistics move."""
    with torch.no_grad():
        return call(norm, x.clone(), valid)


def look(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the output of a copy of the norm, which stays as it was."""
    return run(copy.deepcopy(norm), x, valid)


def trained(norm: Norm, *batches: Tensor) -> Norm:
    """Return a copy in eval mode that was trained on these batches."""
    other = copy.deepcopy(norm).train()
    for batch in batches:
        run(other, batch)
    return other.eval()


def one_by_one(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the outputs for one position at a time, as in decoding."""
    real = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
    with torch.no_grad():
        steps = range(x.shape[1])
        return torch.cat([call(norm, x[:, [t]], real[:, [t]], start=t) for t in steps], 1)


def padding_moves(norm: Norm, x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> bool:
    """Tell whether real tokens change with other or more padding."""
    before = look(norm, x, valid)[valid]
    other = x.masked_fill(~valid[..., None], 100.0)
    more, still = F.pad(x, (0, 0, 0, 2, 0, 1)), F.pad(valid, (0, 2, 0, 1))
    after = (look(norm, other, valid)[valid], look(norm, more, still)[still])
    return any(not torch.allclose(before, y, rtol=0, atol=_ROUNDING) for y in after)


def loss(y: Tensor, valid: Tensor) -> Tensor:
    """Return a loss of some outputs at real tokens that no symmetry of a norm makes constant."""
    return (y * y.detach().cos())[valid].sum()


def train_step(norm: Norm, number: int) -> tuple[Tensor, Tensor]:
    """Train on one batch; return the output and the gradient of the input at real tokens."""
    norms = ModelNorms(nn.Sequential(norm))
    norms.begin_step(number, STEPS)
    x = normal(*_VALID.shape, norm.dim, seed=number).requires_grad_()
    y = call(norm, x, _VALID)
    price = norms.penalty()
    (loss(y, _VALID) + (0 if price is None else price)).backward()
    norms.commit()
    assert x.grad is not None
    return y.detach()[_VALID], x.grad[_VALID]


def begin_step(norm: Norm, number: int) -> None:
    """Tell a norm that a step of a run of `STEPS` begins."""
    ModelNorms(nn.Sequential(norm)).begin_step(number, STEPS)


def differ(before: Tensor, after: Tensor) -> bool:
    """Tell whether two results differ by more than rounding, or one is not finite."""
    limit = _ROUNDING * (1 + before.abs().max())
    return not bool((before - after).abs().max() <= limit)


def state(norm: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the tensors that are saved with a norm."""
    saved = norm.state_dict().items()
    return {name: value.clone() for name, value in saved if isinstance(value, Tensor)}


def remembers(norm: Norm) -> bool:
    """Tell whether it keeps running statistics."""
    return isinstance(norm, RunningNorm)


def tables(norm: Norm) -> dict[str, Tensor]:
    """Return the running statistics by name: the buffers themselves; empty for a norm without."""
    return norm.tables if isinstance(norm, RunningNorm) else {}
