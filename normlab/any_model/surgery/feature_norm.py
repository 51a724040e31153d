"""Recognizes layer and RMS norms over the last axis by running them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from normlab.any_model.surgery.foldable import parameter_data
from normlab.any_model.surgery.formula import is_instance_norm
from normlab.any_model.tracing.norm_modules import eps_of
from normlab.any_model.tracing.norm_trial import copied

LAYER_NORM, RMS_NORM = "layer norm", "RMS norm"


@dataclass
class FeatureNorm:
    """A norm over the last axis, `gain z + bias`. `plain` is the weight that means a gain of 1.

    `eps` is None if it is unknown. It is needed only for layer norms, which are replaced.
    """

    kind: str
    module: nn.Module
    width: int
    weight: str | None
    bias: str | None
    plain: float
    eps: float | None = None

    @property
    def gain(self) -> Tensor:
        if self.weight is None:
            return torch.ones(self.width, dtype=torch.float64)
        return parameter_data(self.module, self.weight).double() + (1.0 - self.plain)

    @property
    def shift(self) -> Tensor | None:
        return parameter_data(self.module, self.bias).double() if self.bias else None

    def output(self, x: Tensor, eps: float | Tensor = 0.0) -> Tensor:
        """Return what the norm's formula gives for an input in float64."""
        z = self.centered(x)
        z = z * (z.square().mean(-1, keepdim=True) + eps).rsqrt()
        y = self.gain.to(z) * z
        return y if self.shift is None else y + self.shift.to(z)

    def centered(self, x: Tensor) -> Tensor:
        """Return the input minus its mean over features, if the norm subtracts the mean."""
        return x - x.mean(-1, keepdim=True) if self.kind == LAYER_NORM else x


def feature_norm_of(module: nn.Module, width: int) -> FeatureNorm | None:
    """Return a layer or RMS norm, recognized by running it, or None if it is neither."""
    weights = dict(module.named_parameters())
    names = list(weights)
    if len(names) > 2 or any(w.shape != (width,) for w in weights.values()):
        return None  # such as a convolutional layer whose class is named after a norm
    if is_instance_norm(module):
        return None
    bias = next((name for name in names if "bias" in name or "beta" in name), None)
    weight = next((name for name in names if name != bias), None)
    x = torch.randn(2, 3, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = (x + 0.3).to(next(iter(weights.values()), x).device)
    large, small = 1e5 * x, 1e-3 * x  # so large that eps does not matter, and so small that it does
    try:
        y, of_small = (copied(module).double()(x) for x in (large, small))
    except Exception:  # such as a group norm, whose channels are on axis 1
        return None
    if not isinstance(y, Tensor) or y.shape != x.shape:
        return None
    for kind in (LAYER_NORM, RMS_NORM):
        for plain in (1.0, 0.0):
            norm = FeatureNorm(kind, module, width, weight, bias, plain)
            if _same(y, norm.output(large)):
                return replace(norm, eps=_eps(norm, small, of_small))
    return None


def _same(y: Tensor, expected: Tensor) -> bool:
    return bool((y - expected).abs().max() < 1e-6 * y.abs().max())


def _eps(norm: FeatureNorm, x: Tensor, y: Tensor) -> float | None:
    """Return the eps with which a norm maps a small input to `y`, or None if there is none.

    This is the attribute `eps` of the norm or, if it has none or another one is used, the eps that
    the output shows.
    """
    attribute = eps_of(norm.module)
    if attribute is not None and _same(y, norm.output(x, attribute)):
        return attribute
    centered = norm.centered(x)
    scaled = norm.gain.to(x) * centered
    shifted = y if norm.shift is None else y - norm.shift.to(y)
    factor = (shifted * scaled).sum(-1) / scaled.square().sum(-1)  # 1 / sqrt(var + eps)
    measured = float((factor**-2 - centered.square().mean(-1)).mean().clamp(min=0))
    for eps in (float(f"{measured:.3g}"), measured):  # most eps have few digits
        if _same(y, norm.output(x, eps)):
            return eps
    return None
