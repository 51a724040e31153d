"""Replaces the norms of any model with norms of another kind, fitted to the old ones."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normlab.any_model.batches.from_batch import first_batches
from normlab.any_model.tracing.norm_modules import eps_of, is_norm
from normlab.any_model.tracing.norm_trial import copied
from normlab.any_model.tracing.restore import unchanged
from normlab.errors import UserError
from normlab.norms.base import Norm
from normlab.norms.bounded import BoundedMap
from normlab.norms.make import make_norm

NEW = ("ln", "rms", "gn", "gn_sample", "dyt", "none")
"""Options of `configs/norm` that can replace a batch, layer or RMS norm."""
_OF_OTHERS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "ln": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms": lambda x: F.rms_norm(x, x.shape[-1:]),
    "bn": lambda x: x,  # running statistics, gain and bias make one linear map per feature
}
"""What norms of other packages compute; separate from normlab's norms, which users can edit."""
_SAME = 1e-3  # relative RMS error below which a formula fits a norm; eps alone causes 1e-5
_ALPHAS = torch.logspace(-4, 3, 27).tolist()
_BETWEEN = torch.logspace(-0.27, 0.27, 15).tolist()  # factors that refine the best alpha


class Fit(NamedTuple):
    """One replaced norm; `alpha` is None unless the new norm is DyT.

    `error` is RMS(new - old) / RMS(old) over the real positions of the calibration batches. Both
    norms get the input that arrives once all norms before them have been replaced.
    """

    site: str
    old: str
    new: str
    features: int
    error: float
    alpha: float | None


@dataclass(frozen=True)
class Swap:
    """A model with new norms, their fits in the order of execution, and, with `loss=`, mean losses.

    Printed as a table.
    """

    model: nn.Module = field(repr=False)
    table: list[Fit]
    before: float | None
    after: float | None

    def __str__(self) -> str:
        rows = [("site", "norm", "features", "fit error", "alpha")]
        for site, old, new, features, error, alpha in self.table:
            last = "" if alpha is None else f"{alpha:.3g}"
            rows.append((site, f"{old} -> {new}", str(features), f"{error:.2g}", last))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        loss = [] if self.before is None else [f"loss {self.before:.4g} -> {self.after:.4g}"]
        return "\n".join([*lines, *loss])


class Swapped(nn.Module):
    """`weight z + bias` per feature, with z from a norm that has neither gain nor bias.

    Features are on `axis` of the input: 1 or -1. The norm treats all axes between the first and the
    features as positions. With `center`, the mean over features is subtracted first; without
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

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        z = self.normalized(x)
        return torch.addcmul(self.bias.to(z), z, self.weight.to(z)).movedim(-1, self.axis)

    def normalized(self, x: Float[Tensor, "..."]) -> Float[Tensor, "... D"]:
        """Return z, with features on the last axis."""
        x = x.movedim(self.axis, -1)
        if self.center:
            x = x - x.mean(-1, keepdim=True)
        return self.norm(x.reshape(len(x), -1, x.shape[-1])).view(x.shape)


@torch.no_grad()
def swap(
    model: nn.Module,
    norm: str,
    *,
    sites: str | Sequence[str] = "*",
    calibrate: Iterable[Any],
    loss: Callable[[Any, Any], Tensor] | None = None,
    inplace: bool = False,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    **options: Any,
) -> Swap:
    """Return a copy of a model whose batch, layer and RMS norms are replaced by `norm`.

    A new norm starts with the old one's gain and eps. Then, in the order of execution, its gain and
    bias are fitted per feature by least squares to the old one's output in evaluation mode (DyT's
    alpha by search). The statistics of batch norms kept after the first new norm are recalibrated.

    `norm` is `ln`, `rms`, `dyt`, `gn` (for images as in torch, otherwise for each position
    separately), `gn_sample` (as in torch) or `none`: the old norm without its division, a linear
    map, which is `gain (x - mean) + bias` for layer norm and `gain x` for RMS norm. `options` go to
    the new norm, such as `groups=32`. `sites` are `fnmatch` patterns for paths of norms.
    `calibrate` are batches (dicts, tuples or tensors), of which at most 8 are used, without the
    padding that a dict's `attention_mask` marks. `forward(model, batch)` calls the model;
    `loss(output, batch)` is averaged before and after the swap. `inplace` changes the model itself,
    unless an error occurs.

    Raises UserError for an unknown norm or setting, no batches, a pattern that matches no norm, or
    a norm that computes something else, such as group norm.
    """
    check_name(norm)
    model, batches = model if inplace else copied(model), first_batches(calibrate)
    norms = {path: module for path, module in model.named_modules() if is_norm(module)}
    chosen = _chosen(norms, [sites] if isinstance(sites, str) else sites)
    run = partial(forward or call, model)
    mean_loss = partial(_mean_loss, run, batches, loss)
    table, replaced, statistics = [], {}, {}
    with unchanged(model, batches):
        model.eval()
        torch.backends.mha.set_fastpath_enabled(False)  # it bypasses norms in torch's encoders
        shapes = _input_shapes(norms, run, batches[0])
        old = {path: (norms[path], shapes.get(path, [None])[0]) for path in chosen}
        news = _new_norms(old, norm, options, sites)
        before = mean_loss()
        for path, called in shapes.items():
            calls = partial(_calls, {path: norms[path]}, run, batches, stop=len(called) == 1)
            if replacement := news.get(path):
                kind, new = replacement
                search = norm == "dyt" and "alpha" not in options
                table.append(Fit(path, kind, norm, *_fit(new, calls, search=search)))
                replaced |= _put(model, norms[path], new)
            elif table and isinstance(getattr(norms[path], "running_mean", None), Tensor):
                statistics[path] = _recalibrated(calls())
                norms[path].load_state_dict(statistics[path], strict=False)
        after = mean_loss()
    for path, values in statistics.items():
        norms[path].load_state_dict(values, strict=False)
    _replace(model, replaced)
    return Swap(model, table, before, after)


def _new_norms(
    old: Mapping[str, tuple[nn.Module, Any]], norm: str, options: Mapping[str, Any], sites: Any
) -> dict[str, Any]:
    """Return each norm's replacement, given an input's shape; UserError if nothing is replaced."""
    news = {path: _new(path, module, shape, norm, options) for path, (module, shape) in old.items()}
    if not any(news.values()):
        raise UserError(f"all norms that sites={sites!r} matches are already {norm}")
    return news


def _mean_loss(
    run: Callable[[Any], Any], batches: Sequence[Any], loss: Callable[[Any, Any], Tensor] | None
) -> float | None:
    return fmean(float(loss(run(batch), batch)) for batch in batches) if loss else None


def _input_shapes(
    norms: Mapping[str, nn.Module], run: Callable[[Any], Any], batch: Any
) -> dict[str, list[Any]]:
    """Return the shapes of each norm's inputs, in the order of execution."""
    shapes: dict[str, list[Any]] = {}
    for path, x, *_ in _calls(norms, run, [batch], rows=0):
        shapes.setdefault(path, []).append(x.shape)
    return shapes


def _replace(model: nn.Module, replaced: Mapping[str, nn.Module]) -> None:
    """Replace norms in a model by new ones in the same mode."""
    for path, new in replaced.items():
        model.set_submodule(path, new.train(model.get_submodule(path).training))
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # normlab's norms do not accept nested tensors


def check_name(norm: str) -> None:
    """Raise UserError if `norm` is not one that others can be replaced by."""
    if norm not in NEW:
        raise UserError(f"{norm!r} is not a norm to swap to; choose from {', '.join(NEW)}")


def call(model: nn.Module, batch: Any) -> Any:
    """Call a model with a batch: a dict, a tuple or one tensor."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def _put(model: nn.Module, old: nn.Module, new: nn.Module) -> dict[str, nn.Module]:
    """Replace a norm everywhere in the model; return the new one by path (several if shared)."""
    paths = [p for p, other in model.named_modules(remove_duplicate=False) if other is old]
    for path in paths:
        model.set_submodule(path, new)
    return dict.fromkeys(paths, new)


def _recalibrated(calls: Iterable[tuple[str, Tensor, Tensor, Any]]) -> dict[str, Tensor]:
    """Return a batch norm's running statistics, recalibrated over all calls."""
    inputs = ((x.movedim(1, -1), mask) for _, x, _, mask in calls)
    count, x, _, xx, *_ = torch.stack([_totals(x, x, m) for x, m in inputs]).sum(0)
    var = (xx - x * x / count) / (count - 1).clamp(min=1)
    return {"running_mean": x / count, "running_var": var}


def _chosen(norms: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the paths of norms that match a pattern; UserError if a pattern matches none."""
    for pattern in patterns:
        if not any(fnmatchcase(path, pattern) for path in norms):
            near = get_close_matches(pattern, norms, n=3, cutoff=0.3) or [*norms][:3]
            choices = f"its norms include {', '.join(near)}" if near else "the model has no norms"
            raise UserError(f"sites={pattern!r} matches no norm; {choices}")
    return [path for path in norms if any(fnmatchcase(path, pattern) for pattern in patterns)]


class _Seen(BaseException):
    """Ends a forward pass early, when the rest is not needed."""


def _calls(
    norms: Mapping[str, nn.Module],
    run: Callable[[Any], Any],
    batches: Iterable[Any],
    *,
    rows: int | None = None,
    stop: bool = False,
) -> Iterator[tuple[str, Tensor, Tensor, Any]]:
    """Yield the path of each called norm, the first rows of its input and output, and the mask.

    Calls with several tensors (gated norms) are left out. `stop` ends a pass after its first call.
    """
    calls: list[tuple[str, Tensor, Tensor]] = []

    def see(path: str, _: nn.Module, args: Any, kwargs: dict[str, Any], y: Tensor) -> None:
        x, *more = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        if not more:
            # copies, as later operations may change them in place
            calls.append((path, x[:rows].clone(), y[:rows].clone()))
            if stop:
                raise _Seen

    for batch in batches:
        with ExitStack() as hooks:
            for path, norm in norms.items():
                hook = norm.register_forward_hook(partial(see, path), with_kwargs=True)
                hooks.callback(hook.remove)
            with suppress(_Seen):
                run(batch)
        mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
        yield from ((*call, mask) for call in calls)
        calls.clear()


def _new(
    path: str, old: Any, shape: torch.Size | None, norm: str, options: Mapping[str, Any]
) -> tuple[str, Swapped] | None:
    """Return the old norm's kind, found by experiment, and a new norm; None if the kinds are equal.

    Raises UserError if the old norm's kind cannot be swapped.
    """
    if shape is None:
        raise UserError(
            f"{path} is never called, or is called with several tensors: leave it out of sites="
        )
    held = next((w for w in (*old.parameters(), *old.buffers()) if w.is_floating_point()), None)
    like, generator = torch.zeros(()) if held is None else held, torch.Generator().manual_seed(0)
    scale, mean = torch.rand(2, 4, *[1] * (len(shape) - 1), generator=generator)
    # large, so that eps does not matter; different per row, so that instance norm is not linear
    x = (torch.randn(4, *shape[1:], generator=generator) + mean) * (10 + 30 * scale)
    x, running = x.to(like.device), hasattr(old, "running_mean")
    y = copied(old).float()(x)
    for kind, axis in [("bn", 1)] if running else product(("ln", "rms"), (-1, 1)):
        z = _OF_OTHERS[kind](x.movedim(axis, -1))
        gain, _, error = _fitted(_totals(z, y.movedim(axis, -1)))
        if error < _SAME:
            break
    else:
        raise UserError(
            f"{path} is a {type(old).__name__} that computes no batch, layer or RMS norm over one "
            f"axis of its input {['B', *shape[1:]]} and cannot be swapped: leave it out of sites="
        )
    if kind == norm:
        return None
    gain = old.weight if running and isinstance(old.weight, Tensor) else gain
    values: dict[str, Any] = {} if norm == "none" else {"affine": False}
    if norm not in ("none", "dyt") and (eps := eps_of(old)):
        values["eps"] = eps
    image = norm == "gn" and axis == 1 and len(shape) > 3
    try:
        new_norm = make_norm("gn_sample" if image else norm, len(gain), **{**values, **options})
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    center = (kind, norm) == ("ln", "none")
    shift = kind == "bn" or norm != "none" or getattr(old, "bias", None) is not None
    return kind, Swapped(new_norm, axis, gain.detach().clone(), center=center, shift=shift).to(like)


def _fit(new: Swapped, calls: Any, *, search: bool) -> tuple[int, float, float | None]:
    """Fit gain and bias, and with `search` DyT's alpha; return the last three fields of `Fit`."""
    alpha = new.norm.alpha if isinstance(new.norm, BoundedMap) else torch.zeros(())
    shift = isinstance(new.bias, nn.Parameter)
    best, gain, bias, error = 1.0, new.weight, new.bias, math.inf
    for grid in (_ALPHAS, _BETWEEN) if search else ([float(alpha)],):
        alphas = [best * value for value in grid]
        totals: list[Any] = [0] * len(alphas)
        for _, x, y, mask in calls():
            for number, value in enumerate(alphas):
                alpha.fill_(value)
                totals[number] += _totals(new.normalized(x), y.movedim(new.axis, -1), mask)
        fits = [_fitted(sums, new.weight, shift=shift) for sums in totals]
        best, (gain, bias, error) = min(zip(alphas, fits, strict=True), key=lambda fit: fit[1][2])
    alpha.fill_(best)
    new.weight.copy_(gain)
    new.bias.copy_(bias)
    return len(gain), error, best if isinstance(new.norm, BoundedMap) else None


def _totals(
    z: Float[Tensor, "... D"], y: Float[Tensor, "... D"], mask: Any = None
) -> Float[Tensor, "6 D"]:
    """Return per feature the count and the sums of z, y, z^2, zy and y^2 at real positions."""
    real = mask.bool() if mask is not None and mask.shape == y.shape[:2] else ...
    z, y = (values[real].flatten(0, -2).double() for values in (z, y))
    return torch.stack([x.sum(0) for x in (torch.ones_like(z), z, y, z * z, z * y, y * y)])


def _fitted(
    totals: Float[Tensor, "6 D"], former: Any = 0.0, *, shift: bool = True
) -> tuple[Tensor, Tensor, float]:
    """Return the gain and bias of the least-squares fit `y = gain z + bias`, and its RMS error.

    The error is relative to RMS(y). A constant feature keeps its `former` gain. Without `shift`
    the bias is 0.
    """
    _, z, y, zz, zy, yy = totals / totals[0]
    z, y = shift * z, shift * y
    var, cov = zz - z * z, zy - z * y
    gain = torch.where(var > 1e-12 * zz, cov / var, former)
    rest = (yy - y * y - 2 * gain * cov + gain * gain * var).sum().clamp(min=0)
    return gain, y - gain * z, float((rest / yy.sum().clamp(min=1e-300)).sqrt())
