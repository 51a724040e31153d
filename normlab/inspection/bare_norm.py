"""Functions that build, train and run a norm outside any model."""

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.config.registry import Option, option_settings
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.model_norms import ModelNorms
from normlab.norms.ramp import Clock
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import Tokens

STEPS = 12  # steps of a run: enough for all phases to end
# `explain` shows a norm that does not pool at first at this step of a long run
HALF_WAY, LONG_RUN = 500, 1000
WIDTH = 4  # width of the articles' example tensor
_CHANGES = ((1.0, 0.7), (-40.0, 0.0), (0.0, 0.0))  # factor and summand of each change to an input
_ROUNDING = 1e-9  # far above the effect of summation order in float64
VALID = torch.arange(6) < torch.tensor([6, 2, 4, 5])[:, None]
"""A mask of the real tokens in four sequences."""


class BareNorm:
    """A norm, new or trained, in float64; each call returns a fresh copy."""

    width = 64

    def __init__(self, build: Callable[[int], Norm]) -> None:
        with _seeded():
            self._made = build(self.width)
        self._trained: dict[int, Norm] = {}

    def new(self, dtype: torch.dtype = torch.float64) -> Norm:
        """Return a new norm in training mode."""
        return copy.deepcopy(self._made).to(dtype).train()

    def trained(self, steps: int = STEPS) -> Norm:
        """Return the norm in training mode after the first `steps` steps of a run of `STEPS`."""
        if steps not in self._trained:
            norm = self.new()
            for number in range(1, steps + 1):
                train_step(norm, number)
            self._trained[steps] = norm
        return copy.deepcopy(self._trained[steps])

    def tokens(self, seed: int = 0) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
        """Return four sequences of 2 to 6 tokens, padded to 6, and which tokens are real."""
        return self.values(*VALID.shape, seed=seed), VALID.clone()

    def values(self, *shape: int, seed: int = 0) -> Float[Tensor, "B P D"]:
        """Return normally distributed values with mean 2 and standard deviation 3."""
        return normal(*shape, self.width, seed=seed)


def normal(*shape: int, seed: int) -> Tensor:
    """Return normally distributed values with mean 2 and standard deviation 3, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * 3 + 2


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """Fix the CPU's random seed inside the context; restore the random state afterwards."""
    former = torch.get_rng_state()
    torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(former)


@dataclass(frozen=True)
class OnTable:
    """An option of `configs/norm` at a width of 4.

    `settings` are the values in its config, `changed` the values replaced to fit the width. The
    norm is shown at `step` of a 1000-step run; 0 means outside a run.
    """

    option: Option
    settings: Mapping[str, Any]
    changed: Mapping[str, int] = field(default_factory=dict)
    step: int = 0

    def make(self, **values: Any) -> Norm:
        """Return a new norm in training mode; `values` override its config."""
        with _seeded():
            norm = make_norm(self.option.name, WIDTH, **{**self.changed, **values})
        norm = norm.double().train()
        if self.step:
            norm.begin_step(Clock(self.step, LONG_RUN))
        return norm


def on_table(option: Option) -> OnTable:
    """Return an option's norm at a width of 4.

    If the norm rejects that width (group norm's 8 groups do not divide 4), one integer setting is
    replaced by the first value that fits. Half the width is tried first, because group norm with
    one feature per group would erase all values. Raises the norm's own error if nothing fits.
    """
    node = option_settings("norm", option.name, "norm")
    settings = {name: value for name, value in node.items() if not name.startswith("_")}
    whole = [name for name, value in settings.items() if type(value) is int]
    tries = [{}, *({name: n} for name in whole for n in (WIDTH // 2, WIDTH, 1))]
    refused: list[ValueError] = []
    for changed in tries:
        try:
            make_norm(option.name, WIDTH, **changed)
            return OnTable(option, settings, changed)
        except ValueError as error:
            refused.append(error)
    raise refused[0]


def call(norm: Norm, x: Tensor, valid: Tensor | None = None, *, start: int = 0) -> Tensor:
    """Return the norm's output, with the same random draws each time.

    All tokens are real if `valid` is None.
    """
    with _seeded():
        return norm(x, Tokens(_all_real(x) if valid is None else valid, start=start))


def _all_real(x: Float[Tensor, "B P D"]) -> Bool[Tensor, "B P"]:
    return torch.ones(x.shape[:2], dtype=torch.bool)


def run(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the norm's output without a gradient; in training mode its statistics are updated."""
    with torch.no_grad():
        return call(norm, x.clone(), valid)


def look(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the output of a copy of the norm; the norm itself stays unchanged."""
    return run(copy.deepcopy(norm), x, valid)


def affected(norm: Norm, x: Tensor, place: tuple[int, ...], before: Tensor) -> Tensor:
    """Return which outputs change, even in the last bit, if the input at `place` changes.

    `before` is the output for the unchanged input.
    """
    changed = torch.zeros_like(before, dtype=torch.bool)
    for factor, summand in _CHANGES:
        other = x.clone()
        other[place] = other[place] * factor + summand
        changed |= look(norm, other) != before
    return changed


def trained(norm: Norm, *batches: Tensor) -> Norm:
    """Return a copy of the norm, trained on these batches, in eval mode."""
    other = copy.deepcopy(norm).train()
    for batch in batches:
        run(other, batch)
    return other.eval()


def one_by_one(norm: Norm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the outputs when positions are fed one at a time, as in decoding."""
    real = _all_real(x) if valid is None else valid
    with torch.no_grad():
        steps = range(x.shape[1])
        return torch.cat([call(norm, x[:, [t]], real[:, [t]], start=t) for t in steps], 1)


class Padded(NamedTuple):
    """Outputs and gradients at real tokens, all statistics, and the gradient at padding."""

    outputs: Float[Tensor, "real D"]
    gradients: Float[Tensor, "real D"]
    statistics: Float[Tensor, " n"]
    leaked: Float[Tensor, "padding D"]


def with_padding(
    norm: Norm,
    x: Float[Tensor, "B P D"],
    valid: Bool[Tensor, "B P"] | None,
    *,
    columns: int = 0,
    rows: int = 0,
    value: float = 0.0,
) -> Padded:
    """Run a copy of a norm with padding set to `value`, and with extra columns and rows of padding.

    If `valid` is None, all tokens are real and the norm gets no mask, as with images.
    """
    other, real = copy.deepcopy(norm), _all_real(x) if valid is None else valid
    filled = x.masked_fill(~real[..., None], value)
    wide = F.pad(filled, (0, 0, 0, columns, 0, rows), value=value).requires_grad_()
    real = F.pad(real, (0, columns, 0, rows))
    with _seeded():
        y = other(wide, Tokens(None if valid is None else real))[real]
    (gradient,) = torch.autograd.grad(loss(y), wide)
    statistics = [torch.zeros(1), *(table.detach().flatten() for table in tables(other).values())]
    return Padded(y.detach(), gradient[real], torch.cat(statistics), gradient[~real])


def padding_moves(norm: Norm, x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> bool:
    """Return whether the values or the amount of padding change the outputs of real tokens."""
    plain = with_padding(norm, x, valid)
    filled = with_padding(norm, x, valid, value=100.0)
    more = with_padding(norm, x, valid, columns=2, rows=1)
    return any(differ(plain.outputs, other.outputs) for other in (filled, more))


def loss(y: Tensor) -> Tensor:
    """Return a loss that normalization cannot make constant, unlike a plain sum."""
    return (y * y.detach().cos()).sum()


def train_step(norm: Norm, number: int) -> tuple[Tensor, Tensor]:
    """Train on one batch; return the output and the gradient of the input at real tokens."""
    norms = ModelNorms(nn.Sequential(norm))
    norms.begin_step(number, STEPS)
    x = normal(*VALID.shape, norm.dim, seed=number).requires_grad_()
    y = call(norm, x, VALID)[VALID]
    price = norms.penalty()
    (loss(y) + (0 if price is None else price)).backward()
    norms.commit()
    assert x.grad is not None
    return y.detach(), x.grad[VALID]


def differ(before: Tensor, after: Tensor) -> bool:
    """Return whether two results differ by more than rounding, or one is not finite."""
    limit = _ROUNDING * (1 + before.abs().max())
    return not bool((before - after).abs().max() <= limit)


def tables(norm: Norm) -> dict[str, Tensor]:
    """Return the buffers of running statistics (not copies) by name; empty if there are none."""
    return norm.tables if isinstance(norm, RunningNorm) else {}
