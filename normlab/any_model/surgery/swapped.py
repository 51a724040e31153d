"""The module that replaces a norm: `weight z + bias`, where z comes from a different norm."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.any_model.batches.outputs import first_float
from normlab.any_model.surgery.calibration import NormCall
from normlab.any_model.surgery.formula import NormFormula, values_of_norm
from normlab.any_model.surgery.least_squares import FitSums, LinearFit, fitted, sums
from normlab.any_model.tracing.norm_modules import eps_of
from normlab.norms.base import Norm
from normlab.norms.bounded import BoundedMap
from normlab.norms.make import make_norm

_ALPHAS = torch.logspace(-4, 3, 27).tolist()
_BETWEEN = torch.logspace(-0.27, 0.27, 15).tolist()  # factors that refine the best alpha


class Swapped(nn.Module):
    """Computes `weight z + bias` per feature, with z from a norm that has neither gain nor bias.

    Features are on `axis` of the input, which is 1 or -1. The norm treats all axes except the first
    and this one as positions. With `center`, the mean over features is subtracted first. Without
    `shift`, the bias is 0.
    """

    def __init__(
        self, norm: Norm, axis: int, weight: Float[Tensor, " D"], *, center: bool, shift: bool
    ) -> None:
        super().__init__()
        self.norm, self.axis, self.center = norm, axis, center
        self.weight, bias = nn.Parameter(weight), torch.zeros_like(weight)
        if shift:
            self.bias = nn.Parameter(bias)
        else:
            self.register_buffer("bias", bias, persistent=False)
        self.eps = getattr(norm, "eps", math.nan)  # nn.TransformerEncoderLayer reads it

    def forward(self, *args: Any, **kwargs: Any) -> Float[Tensor, "..."]:
        """Normalize the first tensor, which may have any name. Other arguments are ignored."""
        z = self.normalized(first_float(args, kwargs))
        return torch.addcmul(self.bias.to(z), z, self.weight.to(z)).movedim(-1, self.axis)

    def normalized(self, x: Float[Tensor, "..."]) -> Float[Tensor, "... D"]:
        """Return z, with features on the last axis."""
        x = x.movedim(self.axis, -1)
        if self.center:
            x = x - x.mean(-1, keepdim=True)
        return self.norm(x.reshape(len(x), -1, x.shape[-1])).view(x.shape)

    @property
    def alpha(self) -> float | None:
        """The slope of DyT's tanh, or None for any other norm."""
        return float(self.norm.alpha) if isinstance(self.norm, BoundedMap) else None

    @torch.no_grad()
    def fit(self, calls: Callable[[], Iterable[NormCall]], *, search: bool) -> float:
        """Fit gain and bias to the old norm's outputs in `calls`, and return the relative error.

        With `search`, DyT's alpha is also fitted: it is the best value on a grid, refined on a
        finer grid around it.
        """
        best = 1.0 if search or self.alpha is None else self.alpha
        fit = LinearFit(self.weight, self.bias, math.inf)
        for grid in (_ALPHAS, _BETWEEN) if search else ([1.0],):
            fits = self._fits([best * value for value in grid], calls)
            best, fit = min(fits.items(), key=_error)
        self._set_alpha(best)
        self.weight.copy_(fit.gain)
        self.bias.copy_(fit.bias)
        return fit.error

    def _fits(
        self, alphas: list[float], calls: Callable[[], Iterable[NormCall]]
    ) -> dict[float, LinearFit]:
        """Return the fit for each alpha, in one pass over the calls."""
        totals: dict[float, FitSums] = {}
        for _, x, y, mask in calls():
            for alpha in alphas:
                self._set_alpha(alpha)
                more = sums(self.normalized(x), y.movedim(self.axis, -1), mask)
                totals[alpha] = totals[alpha] + more if alpha in totals else more
        shift = isinstance(self.bias, nn.Parameter)
        return {alpha: fitted(each, self.weight, shift=shift) for alpha, each in totals.items()}

    def _set_alpha(self, alpha: float) -> None:
        if isinstance(self.norm, BoundedMap):
            self.norm.alpha.fill_(alpha)


def _error(candidate: tuple[float, LinearFit]) -> float:
    return candidate[1].error


def replacement(
    old: nn.Module, formula: NormFormula, norm: str, shape: torch.Size, options: Mapping[str, Any]
) -> Swapped:
    """Return the new norm for an old one, with the old one's gain and eps, before it is fitted.

    `none` is the old formula without its division: `x - mean` for layer norm, `x` for other norms.
    `gn` is group norm as in torch for images, and for each position separately otherwise. `shape`
    is the shape of an input. `options` are passed to the new norm. Raises UserError for a wrong
    option.
    """
    kind, axis, gain = formula
    image = norm == "gn" and axis == 1 and len(shape) > 3
    settings: dict[str, Any] = {} if norm == "none" else {"affine": False}
    if norm not in ("none", "dyt") and (eps := eps_of(old)):
        settings["eps"] = eps
    new = make_norm("gn_sample" if image else norm, len(gain), **{**settings, **options})
    center = (kind, norm) == ("ln", "none")
    shift = kind == "bn" or norm != "none" or getattr(old, "bias", None) is not None
    swapped = Swapped(new, axis, gain.detach().clone(), center=center, shift=shift)
    return swapped.to(values_of_norm(old))
