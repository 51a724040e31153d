"""Norms without the batch axis: each takes its statistics from a token, or from its sequence.

They remember nothing between batches, and do the same in training and in eval.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Norm
from normlab.norms.kernels import RootMeanSquare, standardize
from normlab.norms.pool import Axis, Pool, Stream, real_tokens, widen

Detach = Literal["none", "mean", "std", "both", "value"]


class NoNorm(Norm):
    """Nothing: the tokens as they are."""

    pools: ClassVar[frozenset[Axis]] = frozenset()

    def __init__(self, dim: int) -> None:
        super().__init__(dim, scale=False, shift=False)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x`."""
        return x


class TokenNorm(Norm):
    """The norms that pool over the features of one token."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"feature"})

    def __init__(self, dim: int, *, eps: float, affine: bool) -> None:
        super().__init__(dim, scale=affine, shift=affine)
        self.eps = eps


class LayerNorm(TokenNorm):
    """`(x - mean) / sqrt(var + eps)` of each token (Ba, Kiros and Hinton 2016, equation 4).

    `detach` names the statistics through which no gradient flows: they are constants of the
    backward pass, and the output is the same (DetachNorm; Xu et al. 2019, section 3). `value` is
    the other half: the tokens as they are, with layer norm's gradient. The authors' code of that
    (`gradnorm`) adds the normalized tokens to them, which has the same gradient.
    """

    def __init__(self, dim: int, *, eps: float, affine: bool, detach: Detach = "none") -> None:
        super().__init__(dim, eps=eps, affine=affine)
        self.detach: Detach = detach

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each token less its mean, over its standard deviation."""
        wide, weight, bias = widen(x, self.weight, self.bias)
        if self.detach == "none":
            return F.layer_norm(wide, (self.dim,), weight, bias, self.eps).to(x.dtype)
        if self.detach == "value":
            z = F.layer_norm(wide, (self.dim,), eps=self.eps)
            return torch.addcmul(bias, wide.detach() + (z - z.detach()), weight).to(x.dtype)
        var, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
        inverse = (var + self.eps).rsqrt()
        mean = mean if self.detach == "std" else mean.detach()
        inverse = inverse if self.detach == "mean" else inverse.detach()
        return torch.addcmul(bias, (wide - mean) * inverse, weight).to(x.dtype)


class AdaNorm(TokenNorm):
    """`C (1 - k n) n` with `n` the normalized token, and nothing learned (Xu et al. 2019, eq. 10).

    No gradient flows through the factor `1 - k n`. As in the authors' code `n` is the token less
    its mean, over `sd + eps` with the n - 1 standard deviation.
    """

    exact_gradient: ClassVar[bool] = False

    def __init__(self, dim: int, *, eps: float, scale: float, k: float) -> None:
        super().__init__(dim, eps=eps, affine=False)
        self.scale, self.k = scale, k

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each token normalized, large values of either sign made smaller or larger."""
        (wide,) = widen(x)
        n = (wide - wide.mean(-1, keepdim=True)) / (wide.std(-1, keepdim=True) + self.eps)
        return (self.scale * (1 - self.k * n.detach()) * n).to(x.dtype)


class RMSNorm(Norm):
    """`x / sqrt(mean(x^2) + eps)` of each token (Zhang and Sennrich 2019, equation 4): no shift.

    `eps` is added to the mean square (`eps_inside`), or to its root, as the authors' code does.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"feature"})

    def __init__(self, dim: int, *, eps: float, affine: bool, eps_inside: bool = True) -> None:
        super().__init__(dim, scale=affine, shift=False)
        self.eps = eps
        self.eps_inside = eps_inside

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each token over its root mean square."""
        wide, weight, _ = widen(x, self.weight, self.bias)
        if not self.eps_inside:
            return (weight * wide / (_root_mean_square(wide) + self.eps)).to(x.dtype)
        if x.is_cpu and not torch.compiler.is_compiling():
            return RootMeanSquare.apply(wide, weight, self.eps).to(x.dtype)
        return F.rms_norm(wide, (self.dim,), weight, self.eps).to(x.dtype)


class PartialRMSNorm(RMSNorm):
    """pRMSNorm: the root mean square of the first features only (Zhang and Sennrich 2019).

    `share` of the features, rounded down and at least one, make the statistic; all are scaled.
    """

    def __init__(
        self, dim: int, *, eps: float, affine: bool, eps_inside: bool, share: float
    ) -> None:
        super().__init__(dim, eps=eps, affine=affine, eps_inside=eps_inside)
        if not 0 < share <= 1:
            raise ValueError(f"norm prms: share={share} must be above 0 and at most 1")
        self.pooled = max(1, int(dim * share))

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each token over the root mean square of its first features."""
        wide, weight, _ = widen(x, self.weight, self.bias)
        square = _root_mean_square(wide[..., : self.pooled])
        root = (square.square() + self.eps).sqrt() if self.eps_inside else square + self.eps
        return (weight * wide / root).to(x.dtype)


def _root_mean_square(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True) * x.shape[-1] ** -0.5


class UnitNorm(Norm):
    """`factor g x / ||x||`, with one learned scalar g where a `gain` to begin with is given."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"feature"})
    gain: Tensor

    def __init__(self, dim: int, *, gain: float | None = None, factor: float = 1.0) -> None:
        super().__init__(dim, scale=False, shift=False)
        self.factor = factor
        value = torch.tensor(1.0 if gain is None else gain)
        self._affine("gain", value, learned=gain is not None)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each token at the length `factor g`."""
        wide, gain = widen(x, self.gain)
        return (F.normalize(wide, dim=-1) * (self.factor * gain)).to(x.dtype)


class ScaleNorm(Norm):
    """`g x / ||x||`, one learned scalar g, at first sqrt(D) (Nguyen and Salazar 2019, equation 2).

    `eps` bounds the length from below.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"feature"})

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__(dim, scale=False, shift=False)
        self.eps = eps
        self.g = nn.Parameter(torch.tensor(dim**0.5))

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each token at the length `g`."""
        wide, g = widen(x, self.g)
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        return (wide * (g / length.clamp(min=self.eps))).to(x.dtype)


class GroupNorm(TokenNorm):
    """Layer norm in groups of neighboring features (Wu and He 2018), each token by itself.

    On images group norm pools over space too (`SampleGroupNorm`); here positions are left out, so
    that a token does not see its future. Without `center` each group keeps its mean and is divided
    by its root mean square: without `affine` too, the group scaling of PowerNorm's appendix.

    Raises:
        ValueError: `groups` does not divide `dim`.
    """

    def __init__(
        self, dim: int, *, eps: float, affine: bool, groups: int, center: bool = True
    ) -> None:
        super().__init__(dim, eps=eps, affine=affine)
        self.groups = _dividing("gn", groups, dim)
        self.center = center

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return each group less its mean, over its standard deviation, or over its RMS alone."""
        wide, weight, bias = widen(x, self.weight, self.bias)
        grouped = wide.unflatten(-1, (self.groups, -1))
        normalize = F.layer_norm if self.center else F.rms_norm
        y = normalize(grouped, (self.dim // self.groups,), eps=self.eps).flatten(-2)
        return torch.addcmul(bias, y, weight).to(x.dtype)


def _dividing(option: str, groups: int, dim: int) -> int:
    """Return the groups of a norm; ValueError naming the option unless they divide the width."""
    if groups < 1 or dim % groups:
        fits = [str(n) for n in range(1, min(dim, 64) + 1) if dim % n == 0]
        raise ValueError(
            f"norm {option}: groups={groups} does not divide the width {dim}: "
            f"set groups to one of {', '.join(fits)}"
        )
    return groups


class InstanceNorm(Norm):
    """Each feature over the real tokens of its sequence (Ulyanov et al. 2016), the future too.

    A sequence of one token comes out as the bias alone: one value has no variance.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"position"})

    def __init__(self, dim: int, *, eps: float, affine: bool) -> None:
        super().__init__(dim, scale=affine, shift=affine)
        self.eps = eps
        self.pool = Pool(self.pools)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` by the statistics of each sequence."""
        wide, weight, bias = widen(x, self.weight, self.bias)
        real = real_tokens(stream, x)
        y, _ = standardize(wide, weight, bias, real, pool=self.pool, eps=self.eps)
        return y.to(x.dtype)


class SequenceNorm(InstanceNorm):
    """All features of all real tokens of a sequence together."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"position", "feature"})


class SampleGroupNorm(SequenceNorm):
    """Each group of neighboring features over a sample's positions (Wu and He 2018, equation 7).

    With one group it is the layer norm of that paper, `SequenceNorm`; with as many groups as
    features it is instance norm. `GroupNorm` takes the groups of one position alone.

    Raises:
        ValueError: `groups` does not divide `dim`.
    """

    def __init__(self, dim: int, *, eps: float, affine: bool, groups: int) -> None:
        super().__init__(dim, eps=eps, affine=affine)
        self.pool = Pool(self.pools, groups=_dividing("gn_sample", groups, dim))
