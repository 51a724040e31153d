"""RMS norm and ScaleNorm, which divide a token by its root mean square or by its length."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms import fast
from normlab.norms.base import learn
from normlab.norms.layer import TokenNorm


@dataclass(eq=False, repr=False, kw_only=True)
class RMSNorm(TokenNorm):
    """`weight x / sqrt(mean(x^2) + eps)`, per token (Zhang and Sennrich 2019, equation 4).

    There is a gain, but no shift. A kernel runs instead of `formula` if the two agree; on a CPU,
    its backward pass is written by hand (`fast.py`).

    Args:
        eps_inside: whether `eps` is added to the mean square. Otherwise it is added to the root, as
            in the authors' code.
        share: the mean is over this share of the features, counted from the first and rounded down
            (the authors' pRMSNorm).
        one_plus: whether the gain is `1 + weight`, where weight starts at 0 (Gemma). Weight decay
            then pulls the gain towards 1.
        single_scale: whether all features share one learned gain (SSNorm; Park et al. 2025). The
            formula is then ScaleNorm's, but the learned scalar starts at 1 instead of sqrt(D), so a
            step of Adam changes it sqrt(D) times as much relative to its size.
    """

    eps: float
    eps_inside: bool = True
    share: float = 1.0
    one_plus: bool = False
    single_scale: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.forgo_shift()
        if self.single_scale:
            learn(self, "weight", torch.ones(()), learned=bool(self.affine))
        if self.one_plus:
            nn.init.zeros_(self.weight)

    @property
    def gain(self) -> Tensor:
        """The gain of each feature, `[D]`, or the single gain that all features share."""
        return self.weight + 1 if self.one_plus else self.weight

    def start_gain(self, value: float, *, key: str) -> None:
        super().start_gain(value - self.one_plus, key=key)

    def gain_and_shift(self, z: Tensor) -> Tensor:
        return z * self.gain.to(z)

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        first = max(1, int(self.dim * self.share))
        root = torch.linalg.vector_norm(x[..., :first], dim=-1, keepdim=True) * first**-0.5
        return x / ((root.square() + self.eps).sqrt() if self.eps_inside else root + self.eps)


fast.kernel_of(RMSNorm)(fast.rms_norm)


class UnitNorm(TokenNorm):
    """`factor g x / max(||x||, eps)` of each token, with a learned scalar g that starts at `gain`.

    If `gain` is None, g is the constant 1.
    """

    gain: Tensor

    def __init__(
        self, dim: int, *, gain: float | None = None, factor: float = 1.0, eps: float = 1e-12
    ) -> None:
        super().__init__(dim, affine=False)
        self.factor, self.eps = factor, eps
        value = torch.tensor(1.0 if gain is None else gain)
        learn(self, "gain", value, learned=gain is not None)

    def formula(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * (self.factor * self.gain.to(x) / length.clamp(min=self.eps))


class ScaleNorm(UnitNorm):
    """`g x / ||x||` with a learned g that starts at sqrt(D) (Nguyen and Salazar 2019, eq. 2)."""

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__(dim, gain=dim**0.5, eps=eps)
