"""The batch norm of PowerNorm's repository: each token over its root mean square first."""

from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Stream
from normlab.norms.batch import BatchNorm
from normlab.norms.moments import widen


class ScaledBatchNorm(BatchNorm):
    """Batch norm of tokens that were divided by their root mean square.

    Shen et al. 2020 compare PowerNorm with it (`mask_syncbatchnorm.py` of their code).
    """

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` scaled, then by the statistics of the batch or by the running ones."""
        (wide,) = widen(x)
        square = wide.square().mean(-1, keepdim=True)
        return super().forward(wide * (square + self.eps).rsqrt(), stream).to(x.dtype)

    def fixed_map(self) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]] | None:
        """Return None: a token is scaled by all of its features."""
        return None
