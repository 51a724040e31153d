"""Norms over one token or one sequence, which keep no state; also the bounded DyT and Derf."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Affine, Norm
from normlab.norms.kernels import root_mean_square, standardize
from normlab.norms.pool import ALL, Axis, Pool, Stream, widen

Detach = Literal["none", "mean", "std", "both", "value"]


class NoNorm(Norm):
    """The identity, used where there is no norm."""

    pools: ClassVar[frozenset[Axis]] = frozenset()

    def __init__(self, dim: int) -> None:
        super().__init__(dim, scale=False, shift=False)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        return x


@dataclass(eq=False, repr=False, kw_only=True)
class TokenNorm(Norm):
    """`weight z + bias`, where `formula` computes z from each token separately."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"feature"})

    dim: int = field(kw_only=False)
    affine: Affine

    def __post_init__(self) -> None:
        super().__init__(self.dim, scale=bool(self.affine), shift=self.affine is True)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        z = self.formula(*widen(x))
        return (self.gain_and_shift(z) if self.affine else z).to(x.dtype)

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        """Return z."""
        raise NotImplementedError


@dataclass(eq=False, repr=False, kw_only=True)
class LayerNorm(TokenNorm):
    """`(x - mean) / sqrt(var + eps)` of each token (Ba, Kiros and Hinton 2016, equation 4).

    `detach` names the statistics that the backward pass treats as constants; the output stays the
    same (DetachNorm; Xu et al. 2019, section 3). With `value`, the output is the input but the
    gradient is layer norm's; the authors' `gradnorm` also adds the normalized tokens to the output.
    """

    eps: float
    detach: Detach = "none"

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        if self.detach != "none":
            return super().forward(x, stream)
        wide, weight, bias = widen(x, self.weight, self.bias)
        return F.layer_norm(wide, (self.dim,), weight, bias, self.eps).to(x.dtype)

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        inverse = (var + self.eps).rsqrt()
        if self.detach == "value":
            z = (x - mean) * inverse
            return x.detach() + (z - z.detach())
        mean = mean if self.detach == "std" else mean.detach()
        inverse = inverse if self.detach == "mean" else inverse.detach()
        return (x - mean) * inverse


@dataclass(eq=False, repr=False, kw_only=True)
class AdaNorm(TokenNorm):
    """`C (1 - k n) n`, with n the normalized token and nothing learned (Xu et al. 2019, eq. 10).

    No gradient flows through the factor `1 - k n`. As in the authors' code, `n` is the token minus
    its mean, divided by `sd + eps`, where sd has the divisor D - 1. `scale` is C.
    """

    exact_gradient: ClassVar[bool] = False

    affine: Affine = field(init=False, default=False)
    eps: float
    scale: float
    k: float

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        n = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps)
        return self.scale * (1 - self.k * n.detach()) * n


@dataclass(eq=False, repr=False, kw_only=True)
class RMSNorm(TokenNorm):
    """`x / sqrt(mean(x^2) + eps)` of each token, without a shift (Zhang and Sennrich 2019, eq. 4).

    With `eps_inside`, `eps` is added to the mean square; without it, to the root, as the authors
    do. In their pRMSNorm the mean is over the first `share` of the features, rounded down. With
    `one_plus` the gain is `1 + weight` and the weight starts at 0 (Gemma): weight decay pulls the
    gain to 1.
    """

    eps: float
    eps_inside: bool = True
    share: float = 1.0
    one_plus: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.forgo_shift()
        if self.one_plus:
            nn.init.zeros_(self.weight)

    @property
    def gain(self) -> Tensor:
        """The gain of each feature."""
        return self.weight + 1 if self.one_plus else self.weight

    def start_gain(self, value: float) -> None:
        super().start_gain(value - self.one_plus)

    def gain_and_shift(self, z: Tensor) -> Tensor:
        return z * self.gain.to(z)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        if not self.eps_inside or self.share < 1:
            return super().forward(x, stream)
        wide, weight = widen(x, self.gain)
        return root_mean_square(wide, weight, self.eps).to(x.dtype)

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        first = max(1, int(self.dim * self.share))
        root = torch.linalg.vector_norm(x[..., :first], dim=-1, keepdim=True) * first**-0.5
        return x / ((root.square() + self.eps).sqrt() if self.eps_inside else root + self.eps)


class UnitNorm(TokenNorm):
    """`factor g x / max(||x||, eps)`; g is learned and starts at `gain`, or is the constant 1."""

    gain: Tensor

    def __init__(
        self, dim: int, *, gain: float | None = None, factor: float = 1.0, eps: float = 1e-12
    ) -> None:
        super().__init__(dim, affine=False)
        self.factor, self.eps = factor, eps
        value = torch.tensor(1.0 if gain is None else gain)
        self._affine("gain", value, learned=gain is not None)

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * (self.factor * self.gain.to(x) / length.clamp(min=self.eps))


class ScaleNorm(UnitNorm):
    """`g x / ||x||`, with g learned and initially sqrt(D) (Nguyen and Salazar 2019, equation 2)."""

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__(dim, gain=dim**0.5, eps=eps)


@dataclass(eq=False, repr=False, kw_only=True)
class GroupNorm(TokenNorm):
    """Layer norm within groups of neighboring features (Wu and He 2018), for each token separately.

    On images, group norm also pools over space (`SampleGroupNorm`). Without `center` each group
    keeps its mean and is divided by its root mean square, as in PowerNorm's group scaling.
    """

    eps: float
    groups: int
    center: bool = True

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        normalize = F.layer_norm if self.center else F.rms_norm
        grouped = x.unflatten(-1, (self.groups, -1))
        return normalize(grouped, (self.dim // self.groups,), eps=self.eps).flatten(-2)


@dataclass(eq=False, repr=False, kw_only=True)
class InstanceNorm(TokenNorm):
    """Normalizes each feature over the real tokens of its sequence (Ulyanov et al. 2016).

    Outputs depend on later tokens. A single token has no variance, so its output is the bias.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"position"})

    eps: float
    groups: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pool = Pool(self.pools, groups=self.groups)

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        groups = self.pool.cut(x, stream)
        weight, bias = self.weight.to(groups.x), self.bias.to(groups.x)
        y, _ = standardize(groups, weight, bias, self.pool, self.eps)
        return self.pool.join(y, groups, like=x)


class SequenceNorm(InstanceNorm):
    """Normalizes all features of all real tokens of a sequence together."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"position", "feature"})


@dataclass(eq=False, repr=False, kw_only=True)
class SampleGroupNorm(SequenceNorm):
    """Normalizes groups of neighboring features over a sample's positions (Wu and He 2018, eq. 7).

    With one group it is `SequenceNorm`; with as many groups as features it is instance norm.
    """

    groups: int


Compared = Literal["arctan", "isru", "satursin", "expsign", "smoothsign", "relsign", "cubsign"]
Function = Literal["tanh", "erf", "identity", Compared, "linear_clip"]
FUNCTIONS: Mapping[Function, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "erf": torch.erf,
    "identity": lambda x: x,
    # The functions that Derf's repository compares with erf:
    "arctan": lambda x: 2 / math.pi * torch.atan(x),
    "isru": lambda x: x * (x.square() + 1).rsqrt(),
    "satursin": lambda x: torch.sin(x.clamp(-math.pi / 2, math.pi / 2)),
    "expsign": lambda x: -x.sign() * torch.expm1(-x.abs()),
    "smoothsign": lambda x: x / (1 + x.abs()),
    "relsign": lambda x: x / ((x.square() + 1).sqrt() + 1),
    "cubsign": lambda x: x**3 / (x.abs() ** 3 + 1),
    "linear_clip": lambda x: x.clamp(-1, 1),
}


class BoundedMap(TokenNorm):
    """`weight * f(alpha x + shift) + bias` with one learned scalar `alpha` and no statistics.

    DyT (Zhu et al. 2025, equation 1) uses tanh, Derf (Chen et al. 2025) erf with a learned shift.
    `identity` is unbounded: both papers multiply the embeddings of language models by this learned
    scalar, which starts at sqrt(D), or at 1 if the model already multiplies embeddings by sqrt(D).

    Args:
        alpha: initial value of `alpha`. In large language models the authors choose it per place.
        shift: initial value of the learned scalar `shift`; None for no shift.
        affine: whether weight and bias are learned; with `scale`, the weight alone (LLaMA).
        root_width: whether f is multiplied by sqrt(D). With `isru` that is DyISRU (Stollenwerk
            2025), `sqrt(D) x / sqrt(b + x^2)` with b = alpha^-2.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset()

    def __init__(
        self,
        dim: int,
        *,
        function: Function,
        alpha: float,
        shift: float | None,
        affine: Affine,
        root_width: bool = False,
    ) -> None:
        super().__init__(dim, affine=affine)
        self.function = FUNCTIONS[function]
        self.scale = dim**0.5 if root_width else None
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self.shift = None if shift is None else nn.Parameter(torch.tensor(float(shift)))

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        moved = self.alpha.to(x) * x
        y = self.function(moved if self.shift is None else moved + self.shift.to(x))
        return y if self.scale is None else self.scale * y
