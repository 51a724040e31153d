"""Layer norm, AdaNorm, and the base class of norms that treat tokens separately."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms import fast
from normlab.norms.base import Affine, Norm
from normlab.norms.moments import Axis, widen
from normlab.norms.tokens import ALL, Tokens

Detach = Literal["none", "mean", "std", "both", "value"]


@dataclass(eq=False, repr=False, kw_only=True)
class TokenNorm(Norm):
    """`weight z + bias`, where `formula` computes z from each token `[D]` separately.

    A norm that builds on another one, such as RMS norm, calls the other norm's `normalized`.
    """

    pools: ClassVar[frozenset[Axis]] = frozenset({"feature"})

    dim: int = field(kw_only=False)
    affine: Affine
    saturates_at: float | None = field(init=False, default=None)
    """The bound that |z| approaches, if `formula` saturates like tanh; otherwise None."""

    def __post_init__(self) -> None:
        super().__init__(self.dim, scale=bool(self.affine), shift=self.affine is True)

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        if (quick := fast.output(self, x, tokens)) is not None:
            return quick
        (wide,) = widen(x)
        return self.output(self.formula(wide), wide).to(x.dtype)

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        """Return z, the values before gain and shift."""
        raise NotImplementedError

    def output(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the norm's output, given z and the input that z was computed from."""
        return self.gain_and_shift(z) if self.affine else z

    def normalized(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        """Return z, computed by a kernel if one agrees with `formula`, otherwise by `formula`.

        Other norms call this on a norm built with `affine=False`. `x` must be float32 or float64.
        """
        quick = fast.output(self, x, ALL)
        return self.formula(x) if quick is None else quick


@dataclass(eq=False, repr=False, kw_only=True)
class LayerNorm(TokenNorm):
    """`weight (x - mean) / sqrt(var + eps) + bias`, per token (Ba, Kiros and Hinton 2016, eq. 4).

    The backward pass treats the statistics that `detach` chooses as constants, while the output
    stays the same (DetachNorm; Xu et al. 2019, section 3). With `value`, it is the other way round:
    the output is the input, but the gradient is layer norm's. (The authors' `gradnorm` also adds
    the normalized tokens to the output.) Torch's kernel runs instead of `formula` if the two agree
    (`fast.py`).
    """

    eps: float
    detach: Detach = "none"

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        inverse = (var + self.eps).rsqrt()
        if self.detach == "none":
            return (x - mean) * inverse
        if self.detach == "value":
            z = (x - mean) * inverse
            return x.detach() + (z - z.detach())
        mean = mean if self.detach == "std" else mean.detach()
        inverse = inverse if self.detach == "mean" else inverse.detach()
        return (x - mean) * inverse


fast.kernel_of(LayerNorm)(fast.layer_norm)


@dataclass(eq=False, repr=False, kw_only=True)
class AdaNorm(TokenNorm):
    """`C (1 - k n) n`, with n the normalized token and nothing learned (Xu et al. 2019, eq. 10).

    As in the authors' code, n is `(x - mean) / (sd + eps)` over the token's features, where the
    standard deviation has the divisor D - 1. No gradient flows through the factor `1 - k n`.
    `scale` is C.
    """

    exact_gradient: ClassVar[bool] = False

    affine: Affine = field(init=False, default=False)
    eps: float
    scale: float
    k: float

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        n = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps)
        return self.scale * (1 - self.k * n.detach()) * n
