"""Batch norm (Ioffe and Szegedy 2015, algorithm 1), and variants that pool over different axes.

Each token counts as one example of the batch. The files in `configs/norm` describe the settings.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.errors import UserError
from normlab.norms import fast
from normlab.norms.moments import Axis, Moments, Padding
from normlab.norms.ramp import Clock
from normlab.norms.rms import RMSNorm
from normlab.norms.running import RunningNorm

_DRAWN_AT_ONCE = 64  # steps for which noise is drawn at once


@dataclass(eq=False, repr=False, kw_only=True)
class BatchNorm(RunningNorm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, per feature over all tokens of the batch.

    With `unbiased`, the running variance has the divisor n - 1, for n tokens. A batch is always
    normalized with the divisor n, as in `nn.BatchNorm1d`. `padding` chooses the tokens that enter
    the statistics: only real tokens (`exclude`), all tokens (`include`), or all tokens with padding
    set to the mean, which shrinks the variance (`fill`). Torch's kernel runs instead of `formula`
    if the two agree (`fast.py`).
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})

    padding: Padding
    unbiased: bool
    running_mean: Tensor = field(init=False)
    running_var: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.keep_rows(1)

    def keep_rows(self, rows: int) -> None:
        """Create tables with `rows` rows: one per position, or a single row for all positions."""
        self.pool.rows = rows
        columns = 1 if "feature" in self.pools else self.dim
        self.register_buffer("running_mean", torch.zeros(rows, columns))
        self.register_buffer("running_var", torch.ones(rows, columns))

    def formula(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return (x - mean) * (var + self.eps).rsqrt()

    def running_moments(self) -> tuple[Tensor, Tensor]:
        return self.running_mean, self.running_var

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        self.running_mean[rows].lerp_(mean, share)
        self.running_var[rows].lerp_(var, share)

    def estimates(self, moments: Moments) -> tuple[Tensor, Tensor]:
        mean, var = super().estimates(moments)
        freedom = (moments.var_count - 1).clamp(min=1)
        return mean, (moments.var * (moments.var_count / freedom)).to(var) if self.unbiased else var

    def batch_divisor(self) -> Tensor | None:
        alone = self.exact_gradient and self.ghost is None and self.pool.rows == 1
        if not alone or self.last_batch is None:
            return None
        var = self.last_batch().var.flatten()
        zero = torch.zeros_like(var)
        return 1 / self.formula(zero + 1, zero, var)


fast.kernel_of(BatchNorm)(fast.batch_norm)


class GlobalNorm(BatchNorm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, with one mean and variance for the batch.

    Both are over all features of all tokens.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position", "feature"})


@dataclass(eq=False, repr=False, kw_only=True)
class PositionBatchNorm(BatchNorm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, per feature over the tokens at one position.

    The tables are `[num_positions, D]`. A single token at a position has no variance: its output is
    the bias, and the position's row in the tables is not updated. Recurrent positions beyond the
    last row share that row (Cooijmans et al. 2017, section 3).
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch"})

    num_positions: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.most_positions = self.num_positions
        self.keep_rows(self.num_positions)

    def rows_of(self, start: int, length: int) -> slice:
        if self.by_position:
            start = min(start, self.num_positions - length)
        if start + length > self.num_positions:
            raise UserError(
                f"num_positions={self.num_positions} is too few for position "
                f"{start + length - 1}; raise norm.num_positions, or shorten the sequences"
            )
        return slice(start, start + length)


class SampleBatchNorm(PositionBatchNorm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, over all features of the tokens at a position.

    A token that is alone at its position is normalized over its features, as in layer norm.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "feature"})


class ScaledBatchNorm(BatchNorm):
    """Batch norm of `x / sqrt(mean(x^2) + eps)`, which is RMS norm's output for each token.

    It is a baseline for PowerNorm in Shen et al. 2020 (`mask_syncbatchnorm.py` in their code).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rms_norm = RMSNorm(self.dim, affine=False, eps=self.eps).normalized

    def prepare(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        return self.rms_norm(x)


@dataclass(eq=False, repr=False, kw_only=True)
class NoisyBatchNorm(BatchNorm):
    """Batch norm whose output mean and deviation change randomly at every training update.

        y = weight (z s + m) + bias,  z = (x - mean) / sqrt(var + eps)

    For each update, norm and feature, m is drawn uniformly from `[-noise_shift, noise_shift]` and s
    from `[1, noise_scale]`. All tokens on all processes share them. This adds internal covariate
    shift (Ioffe and Szegedy 2015) on purpose. Santurkar et al. 2018 (section 2.2) additionally draw
    noise per sample, after the gain. Outside a run there is no noise.
    """

    noise_shift: float
    noise_scale: float
    noise: Float[Tensor, "2 D"] = field(init=False)  # from 0 to 1: this step's numbers for m and s
    _seed = 0  # not a field
    # the first of `_DRAWN_AT_ONCE` steps, and the random numbers of all of them
    _drawn: tuple[int, Tensor] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("noise", self.no_noise(), persistent=False)

    def no_noise(self) -> Float[Tensor, "2 D"]:
        """Return the random numbers that change nothing: those of m = 0 and s = 1."""
        return torch.tensor([[0.5], [0.0]]).repeat(1, self.dim)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the seed of this norm's noise."""
        self._seed, self._drawn = int(torch.randint(2**62, (), generator=generator)), None

    def begin_step(self, clock: Clock) -> None:
        super().begin_step(clock)
        self.noise.copy_(self.drawn(clock.step, self.noise) if clock.step else self.no_noise())

    def drawn(self, step: int, like: Tensor) -> Float[Tensor, "2 D"]:
        """Return a step's random numbers. A GPU receives those of many steps at once."""
        first = step - step % _DRAWN_AT_ONCE
        if self._drawn is None or self._drawn[0] != first or self._drawn[1].device != like.device:
            draw = torch.Generator()
            numbers = [
                torch.rand(2, self.dim, generator=draw.manual_seed(self._seed + each))
                for each in range(first, first + _DRAWN_AT_ONCE)
            ]
            self._drawn = first, torch.stack(numbers).to(like.device, non_blocking=True)
        return self._drawn[1][step - first].to(like)

    def training_formula(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Return `x` normalized, with the noise of this update in training."""
        z = self.formula(x, mean, var)
        if self.regime != "train":
            return z
        shift, scale = self.noise.to(z)
        return torch.addcmul(
            self.noise_shift * (2 * shift - 1), z, 1 + (self.noise_scale - 1) * scale
        )
