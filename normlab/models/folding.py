"""Folds norms that are fixed at inference into the adjacent linear layers.

With running statistics, batch norm is a fixed scale and shift per feature (Ioffe and Szegedy 2015,
algorithm 2, line 11), and so is TaperNorm after training. If only linear layers read the norm's
output, the scale is folded into their weights and the shift into their biases, and the norm is
removed:

    W (s * x + t) + b  =  (W s) x + (W t + b)

A norm right after a linear layer or a convolution is folded into it in the same way.

These norms are not folded: norms of post-norm residuals, whose output is the residual stream; norms
before an output projection tied to the embedding; and norms with separate statistics per position.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from normlab.models.base import Fold
from normlab.models.layers import Linear
from normlab.norms.base import NoNorm, Norm
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import Tokens

_POSITIONS = 4  # number of positions of test inputs, unless the norm allows fewer
_TOLERANCE = 1e-9


@torch.no_grad()
def fold(model: nn.Module) -> list[str]:
    """Fold a model's norms in place, in eval mode, and return the names of the folded norms.

    The model's output stays the same up to rounding, but the model can no longer be trained or
    recalibrated.
    """
    names = {module: name for name, module in model.named_modules()}
    folded: list[str] = []
    for module in names:
        if isinstance(module, Linear) and module.centered:
            module.settle()
    for module in names:
        for place in getattr(module, "folds", tuple)():
            norm = getattr(place.owner, place.name)
            if isinstance(norm, Norm) and _folded(norm, place):
                setattr(place.owner, place.name, NoNorm(norm.dim))
                folded.append(names[norm])
    return sorted(folded)


def _folded(norm: Norm, place: Fold) -> bool:
    """Fold a norm into the adjacent layers, and return whether that was possible."""
    if (fixed := fixed_map(norm)) is None:
        return False
    scale, shift = fixed
    for linear in place.into:
        weight = linear.weight.double()
        moved = weight @ shift
        _set_bias(linear, moved if linear.bias is None else moved + linear.bias.double())
        linear.weight.copy_(weight * scale)
    if (product := place.preceding) is not None:
        # In a gated feed-forward layer, the first half of this linear layer's outputs is the gate.
        weight, bias = product.weight[: norm.dim], product.bias
        weight.copy_(weight.double() * scale.view(-1, *[1] * (weight.dim() - 1)))
        moved = torch.zeros(len(product.weight), dtype=torch.float64, device=weight.device)
        moved = moved if bias is None else moved + bias
        moved[: norm.dim] = moved[: norm.dim] * scale + shift
        _set_bias(product, moved)
    return True


def _set_bias(product: nn.Linear | nn.Conv2d, bias: Tensor) -> None:
    product.bias = nn.Parameter(bias.to(product.weight))


@torch.no_grad()
def fixed_map(norm: Norm) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]] | None:
    """Return a norm's scale and shift per feature in float64, or None if it cannot be folded.

    For the norm f in eval mode, the shift is f(0) and the scale is f(1) - f(0). Random inputs check
    that f is this affine map. Norms that are not `foldable`, or that read other tokens of the
    batch, are not folded.
    """
    by_row = isinstance(norm, RunningNorm) and norm.pool.rows > 1
    if norm.training or not norm.foldable or not norm.incremental or by_row:
        return None
    state = [*norm.named_parameters(), *norm.named_buffers()]
    exact = {name: t.double() if t.is_floating_point() else t for name, t in state}
    positions = norm.most_positions or _POSITIONS
    generator = torch.Generator().manual_seed(0)

    def outputs(x: Tensor) -> Tensor:
        return functional_call(norm, exact, (x.to(norm.weight.device), Tokens()))

    zero = torch.zeros(1, 1, norm.dim, dtype=torch.float64)
    shift = outputs(zero)[0, 0]
    scale = outputs(zero + 1)[0, 0] - shift
    x = torch.randn(2, positions, norm.dim, dtype=torch.float64, generator=generator)
    expected = x.to(scale) * scale + shift
    same = torch.allclose(outputs(x), expected, rtol=_TOLERANCE, atol=_TOLERANCE)
    return (scale, shift) if same else None
