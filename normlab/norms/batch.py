"""Batch norm (Ioffe and Szegedy 2015, algorithm 1), and variants that pool over other axes.

Each token of a batch is one example; the files in `configs/norm` describe the options.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.errors import UserError
from normlab.norms.base import RunningNorm, uncompiled
from normlab.norms.kernels import standardize
from normlab.norms.pool import ALL, Axis, Grouped, Groups, Moments, Padding, Stream, select, widen


@dataclass(eq=False, repr=False, kw_only=True)
class BatchNorm(RunningNorm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, per feature over all tokens of the batch.

    With `unbiased` the running variance divides by n - 1; batches are always normalized with the
    variance that divides by n, as in `nn.BatchNorm1d`. `padding` says which tokens count: only real
    ones (`exclude`), all (`include`), or real ones with padding counted as equal to the mean, which
    shrinks the variance (`fill`).
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})
    kernel: ClassVar[bool] = True  # use `kernels.standardize` instead of `formula`, which is slower

    padding: Padding
    unbiased: bool
    running_mean: Tensor = field(init=False)
    running_var: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.keep_rows(1)

    def keep_rows(self, rows: int) -> None:
        """Create the tables with `rows` rows: one per position, or a single one for all."""
        self.rows = rows
        columns = 1 if "feature" in self.pools else self.dim
        self.register_buffer("running_mean", torch.zeros(rows, columns))
        self.register_buffer("running_var", torch.ones(rows, columns))

    def formula(self, x: Grouped, m: Moments) -> Grouped:
        """Normalize `x` by the moments of its groups, without gain and shift."""
        return (x - m.mean) * self.inverse(m.var) * (m.count > 1)  # one value has no variance

    def normalize(self, groups: Groups) -> tuple[Grouped, Moments]:
        x = groups.x
        if self.kernel:
            weight, bias = self.weight.to(x), self.bias.to(x)
            return standardize(groups, weight, bias, self.pool, self.eps, self.of_groups)
        moments = self.pool.moments(groups, self.of_groups)
        y = self.gain_and_shift(self.formula(x, moments.rows(x.shape[2])))
        return select(y, groups.kept), moments

    def running_moments(self) -> tuple[Tensor, Tensor]:
        return self.running_mean, self.running_var

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        self.running_mean[rows].lerp_(mean, share)
        self.running_var[rows].lerp_(var, share)

    def estimates(self, found: Moments) -> tuple[Tensor, Tensor]:
        mean, var = super().estimates(found)
        freedom = (found.var_count - 1).clamp(min=1)
        return mean, (found.var * (found.var_count / freedom)).to(var) if self.unbiased else var

    def batch_divisor(self) -> Tensor | None:
        alone = self.exact_gradient and self.ghost is None and self.rows == 1
        return 1 / self.inverse(self.seen.var.flatten()) if alone and self.seen else None


class GlobalNorm(BatchNorm):
    """One mean and one variance over all features of all tokens of the batch."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position", "feature"})


@dataclass(eq=False, repr=False, kw_only=True)
class PositionBatchNorm(BatchNorm):
    """Batch norm per position: statistics per feature over the tokens at the same position.

    A single value has no variance: its output is the bias, and the table row is not updated.
    Recurrent positions beyond the last row use that row (Cooijmans et al. 2017, section 3).
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
                f"num_positions={self.num_positions} is too few for position {start + length - 1}: "
                "raise norm.num_positions, or shorten the sequences"
            )
        return slice(start, start + length)


class SampleBatchNorm(PositionBatchNorm):
    """Batch norm per position, with all features of a position pooled together.

    A token that is alone at its position is normalized over its features, as in layer norm.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "feature"})


class ScaledBatchNorm(BatchNorm):
    """Batch norm of tokens that are first divided by their root mean square.

    It is a baseline for PowerNorm in Shen et al. 2020 (`mask_syncbatchnorm.py` in their code).
    """

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        (wide,) = widen(x)
        square = wide.square().mean(-1, keepdim=True)
        return super().forward(wide * (square + self.eps).rsqrt(), stream).to(x.dtype)


@dataclass(eq=False, repr=False, kw_only=True)
class NoisyBatchNorm(BatchNorm):
    """Batch norm whose output mean and deviation change randomly with every training update.

        y = weight (z s + m) + bias

    z is the normalized value of a feature. For each update, norm and feature, m is drawn from
    `[-noise_shift, noise_shift]` and s from `[1, noise_scale]`; all tokens on all processes share
    them. This adds internal covariate shift (Ioffe and Szegedy 2015) on purpose. Santurkar et al.
    2018 (section 2.2) also draw noise per sample, after the gain. Outside a run there is no noise.
    """

    noise_shift: float
    noise_scale: float
    _seed = 0  # not a field

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the seed of this norm's noise."""
        self._seed = int(torch.randint(2**62, (), generator=generator))

    @uncompiled
    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        y = super().forward(x, stream)
        if self.regime != "train" or self.clock.step == 0:
            return y
        draw = torch.Generator().manual_seed(self._seed + self.clock.step)
        shift, scale = torch.rand(2, self.dim, generator=draw).to(self.weight)
        shift, scale = self.noise_shift * (2 * shift - 1), 1 + (self.noise_scale - 1) * scale
        moved = torch.addcmul(self.bias * (1 - scale), self.weight, shift)
        return torch.addcmul(moved, y, scale).to(y.dtype)
