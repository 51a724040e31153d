"""Replaces the norms of any model with norms of another kind, fitted to the old ones.

Norm by norm, in the order of execution:

    old(x) = gain f(x) + bias      f is batch, layer or RMS norm, found by a trial (`formula.py`)
    new(x) = weight g(x) + bias    g is the new norm without gain and bias (`swapped.py`)

Weight and bias are the least-squares fit of new(x) to old(x) over the calibration batches.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normlab.any_model.batches.from_batch import first_batches
from normlab.any_model.surgery.calibration import Calibration
from normlab.any_model.surgery.formula import formula_of
from normlab.any_model.surgery.swapped import Swapped, replacement
from normlab.any_model.tracing.calls import uncompiled
from normlab.any_model.tracing.functional_norms import functions_in_words
from normlab.any_model.tracing.norm_modules import is_norm
from normlab.any_model.tracing.norm_trial import copied
from normlab.any_model.tracing.restore import preserved
from normlab.any_model.tracing.supported import plain_model, replaced_forward
from normlab.errors import UserError
from normlab.norms.base import Norm

NEW = ("ln", "rms", "gn", "gn_sample", "dyt", "none")
"""Options of `configs/norm` that can replace a batch, layer or RMS norm."""


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
) -> "Swap":
    """Return a copy of a model whose batch, layer and RMS norms are replaced by `norm`.

    A new norm starts with the gain and eps of the old one. Then, in the order of execution, its
    gain and bias are fitted by least squares, per feature, to the output of the old norm in
    evaluation mode; DyT's alpha is found by search. Batch norms that are kept after the first new
    norm get recalibrated statistics.

    `norm` is one of these:

        ln, rms, dyt
        gn          as in torch for images, otherwise for each position separately
        gn_sample   as in torch
        none        the old norm without its division, which is a linear map: `gain (x - mean) +
                    bias` for layer norm, `gain x` for RMS norm

    `options`, such as `groups=32`, are passed to the new norm. `sites` are `fnmatch` patterns for
    the paths of the norms to replace; modules without statistics, such as DyT, are never replaced.
    `calibrate` are batches (dicts, tuples or tensors), of which at most 8 are used; padding that a
    dict's `attention_mask` marks is left out. `forward(model, batch)` calls the model.
    `loss(output, batch)` is averaged over the batches before and after the swap. With `inplace`,
    the model itself is changed, unless an error occurs.

    Raises UserError for an unknown norm or setting, if there are no batches, if a pattern matches
    no norm, if a norm computes something else, such as group norm, or if the model cannot be run.
    """
    check_name(norm)
    model, batches = plain_model(model), first_batches(calibrate)
    model = model if inplace else copied(model)
    calibration = Calibration(model, batches, forward)
    norms = _norms_with_statistics(model, calibration)
    chosen = _chosen(norms, [sites] if isinstance(sites, str) else sites)
    with preserved(model, batches), uncompiled():  # so that after an error, the model is as it was
        model.eval()
        torch.backends.mha.set_fastpath_enabled(False)  # it bypasses norms in torch's encoders
        shapes = calibration.input_shapes(norms)
        if not (inplace or shapes.keys() >= {*chosen}):
            _check_that_the_copy_runs(model)
        news = {
            path: _replacement(path, norms[path], shapes.get(path, ()), norm, options)
            for path in chosen
        }
        if not any(news.values()):
            raise UserError(f"all norms that sites={sites!r} matches are already {norm}")
        before = calibration.mean_loss(loss)
        search = norm == "dyt" and "alpha" not in options
        changes = _replace_in_order(model, calibration, shapes, news, search=search)
        after = calibration.mean_loss(loss)
        if loss is None:
            calibration.run(batches[0])  # so that a new norm that cannot be called raises here
    changes.apply(model)
    return Swap(model, changes.table, before, after)


class Fit(NamedTuple):
    """A norm that was replaced. `alpha` is None unless the new norm is DyT.

    `error` is RMS(new - old) / RMS(old) over the real positions of the calibration batches. Both
    norms get the input that they have after all earlier norms have been replaced.
    """

    site: str
    old: str
    new: str
    features: int
    error: float
    alpha: float | None


@dataclass(frozen=True)
class Swap:
    """A model with new norms, and their fits in the order of execution. `str()` is a table of fits.

    `before` and `after` are the mean losses before and after the swap, or None without `loss=`.
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


class _Replacement(NamedTuple):
    """A new norm, its name, and the kind of the old one."""

    old: str
    new: str
    module: Swapped


@dataclass
class _Changes:
    """The new norms and the recalibrated statistics, keyed by path, and the new norms' fits."""

    table: list[Fit] = field(default_factory=list)
    norms: dict[str, Swapped] = field(default_factory=dict)
    statistics: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def apply(self, model: nn.Module) -> None:
        """Make the changes. A new norm gets the mode of the old one."""
        for path, values in self.statistics.items():
            model.get_submodule(path).load_state_dict(values, strict=False)
        for path, new in self.norms.items():
            model.set_submodule(path, new.train(model.get_submodule(path).training))
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder):
                module.use_nested_tensor = False  # normlab's norms do not accept nested tensors


def _replace_in_order(
    model: nn.Module,
    calibration: Calibration,
    shapes: Mapping[str, Sequence[torch.Size]],
    news: Mapping[str, _Replacement | None],
    *,
    search: bool,
) -> _Changes:
    """Fit and insert the new norms, and recalibrate the batch norms after them, in place.

    Each norm gets the inputs that it has after all earlier norms have been replaced.
    """
    changes, olds = _Changes(), {path: model.get_submodule(path) for path in shapes}
    for path, old in olds.items():
        once = len(shapes[path]) == 1
        if replaced := news.get(path):
            new = replaced.module
            error = new.fit(partial(calibration.calls, {path: old}, once=once), search=search)
            fit = Fit(path, replaced.old, replaced.new, len(new.weight), error, new.alpha)
            changes.table.append(fit)
            for each in _paths(model, old):
                model.set_submodule(each, new)
                changes.norms[each] = new
        elif changes.table and _keeps_mean_and_variance(old):
            changes.statistics[path] = calibration.running_statistics(path, old, once=once)
            old.load_state_dict(changes.statistics[path], strict=False)
    return changes


def _paths(model: nn.Module, norm: nn.Module) -> list[str]:
    """Return all paths of a module. A shared module has several."""
    return [path for path, m in model.named_modules(remove_duplicate=False) if m is norm]


def _norms_with_statistics(model: nn.Module, calibration: Calibration) -> dict[str, nn.Module]:
    """Return the norms that pool over something, by path. Raises UserError if there are none."""
    norms = {path: module for path, module in model.named_modules() if _has_statistics(module)}
    if "" in norms:
        raise UserError(
            f"the model itself is a {type(model).__name__}; pass a module that contains it, such "
            "as nn.Sequential(model)"
        )
    if not norms:
        with preserved(model, calibration.batches), uncompiled():
            run = partial(calibration.run, calibration.batches[0])
            functions = functions_in_words(model.eval(), run)
        raise UserError(f"the model has no norms{functions}")
    return norms


def _check_that_the_copy_runs(model: nn.Module) -> None:
    """Raise UserError if a copied module's `forward` was replaced by one of the original."""
    if owner := replaced_forward(model):
        raise UserError(
            f"{owner} has a forward function that runs the original instead of the copy; "
            "restore its own forward, or set inplace=True"
        )


def _has_statistics(module: nn.Module) -> bool:
    """Return whether a module is a norm that pools over something, unlike DyT and `none`."""
    return is_norm(module) and not (isinstance(module, Norm) and not module.pools)


def _keeps_mean_and_variance(norm: nn.Module) -> bool:
    values = (getattr(norm, name, None) for name in ("running_mean", "running_var"))
    return all(isinstance(value, Tensor) for value in values)


def _replacement(
    path: str,
    old: nn.Module,
    shapes: Sequence[torch.Size],
    norm: str,
    options: Mapping[str, Any],
) -> _Replacement | None:
    """Return the norm that replaces an old one, or None if the old one already computes the same.

    `shapes` has the shape of its input in each call. Raises UserError if it cannot be replaced.
    """
    if not shapes:
        raise UserError(
            f"{path} is never called, or is called with several tensors; leave it out of sites="
        )
    shape = shapes[0]  # the calls differ only in rows and positions
    formula = formula_of(old, shape)
    if formula is None:
        raise UserError(
            f"{path} cannot be swapped: a {type(old).__name__} is not a batch, layer or RMS norm "
            f"over one axis of its input {['B', *shape[1:]]}; leave it out of sites="
        )
    if formula.kind == norm:
        return None
    try:
        new = replacement(old, formula, norm, shape, options)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return _Replacement(formula.kind, norm, new)


def check_name(norm: str) -> None:
    """Raise UserError if `norm` cannot replace other norms."""
    if norm not in NEW:
        raise UserError(f"{norm!r} cannot replace other norms; choose from {', '.join(NEW)}")


def _chosen(norms: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the paths of norms that match a pattern. Raise UserError if a pattern matches none."""
    for pattern in patterns:
        if not any(fnmatchcase(path, pattern) for path in norms):
            near = get_close_matches(pattern, norms, n=3, cutoff=0.3) or [*norms][:3]
            raise UserError(
                f"sites={pattern!r} matches no norm; its norms include {', '.join(near)}"
            )
    return [path for path in norms if any(fnmatchcase(path, pattern) for pattern in patterns)]
