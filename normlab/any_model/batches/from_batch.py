"""Turns a user's batch into an example: finds the row and token axes and the padding mask."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normlab.any_model.batches.example import Example, Forward, Key
from normlab.any_model.batches.masks import (
    KINDS,
    MADE,
    check_mask,
    find_mask,
    kind_of,
    under_padding,
)
from normlab.errors import UserError

_TOKENS = ("input_ids", "inputs_embeds", "input_values", "input_features")
_LIMITS = ("max_position_embeddings", "n_positions", "max_source_positions")
"""Entries of a config that limit the number of positions, padding included."""
SAMPLES = 320
"""Audio samples that count as one position: 20 ms at 16 kHz, one frame of most speech models."""
FEWEST_ROWS = 3  # not two: batch norm maps any two values to -1 and 1
KEPT = 8  # most batches used for statistics and calibration


def first_batches(batches: Any) -> list[Any]:
    """Return up to `KEPT` batches of an iterable, or a single batch; UserError if there is none."""
    tensors = isinstance(batches, tuple) and any(isinstance(item, Tensor) for item in batches)
    if tensors or isinstance(batches, Mapping | Tensor):
        return [batches]
    if not isinstance(batches, Iterable):
        raise UserError(f"batches is a {type(batches).__name__}: pass a list of inputs")
    first = list(islice(batches, KEPT))
    if not first:
        raise UserError("batches is empty; if it is a generator, it is already used up")
    return first


def call_with(model: nn.Module, batch: Any) -> Any:
    """Call a model with a batch: a dict, a tuple or one tensor."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


class Axes(NamedTuple):
    """The row axis and the position axis of the main input, as far as they are known."""

    rows: int | None = None
    positions: int | None = None

    def of(self, x: Tensor, name: str) -> "Axes":
        """Return the axes as indices from the first axis; UserError if the input lacks one."""
        for which, axis in self._asdict().items():
            if axis is not None and not -x.ndim <= axis < x.ndim:
                raise UserError(f"{which}={axis}: {name} has the shape {[*x.shape]}")
        rows, positions = (None if axis is None else axis % x.ndim for axis in self)
        if rows is not None and rows == positions:
            raise UserError(f"rows and positions are both axis {rows}: set different axes")
        return Axes(rows, positions)


@dataclass(frozen=True)
class Conventions:
    """How to read a user's batch, and how much of it; `normlab.inspect` explains each field."""

    forward: Forward | None = None
    mask: Any = None
    axes: Axes = field(default_factory=Axes)
    max_rows: int = 4
    max_positions: int = 128


def example_of(
    model: nn.Module,
    batch: Any,
    conventions: Conventions = Conventions(),
) -> Example:
    """Return a batch's longest rows as an example, cut to the real positions of the longest one.

    Raises UserError with a one-sentence message if the inputs cannot be examined.
    """
    config = getattr(model, "config", None)
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    values = values_of(batch, device)
    by_position = not conventions.forward  # otherwise the user's function names them
    parameters = [*inspect.signature(model.forward).parameters] if by_position else []
    names = _names(values, parameters)
    mask = conventions.mask
    key, kind = find_mask(values, names, mask.to(device) if isinstance(mask, Tensor) else mask)
    main = _main_input(values, names, key)
    x, marks = values[main], values[key] if kind else None
    axes = conventions.axes.of(x, names[main])
    axis = axes.positions
    if axis is None:
        axis = _token_axis(model, x, names[main], marks, axes.rows)
    row_axis = axes.rows if axes.rows is not None else int(axis == 0)
    length = 0 if axis is None else x.shape[axis]
    size = x.shape[row_axis] if marks is None else len(marks)
    if marks is not None:
        kind = _kind(model, x, row_axis, marks, names.get(key, ""), kind)
    added = next((name for name in MADE if name in parameters and name not in names.values()), None)
    # another encoder's states have their own mask, which is not `attention_mask`
    if not kind and length and added and not names[main].startswith("encoder_"):
        key, kind = added, KINDS[added]
        real = torch.ones(size, length, dtype=torch.long, device=device)
        values[added], names[added] = real if kind == "real" else real == 0, added
    by_row, by_token = _axes(values, names, config, size, length)
    if axis is not None:
        by_token[main] = axis
    _check_rows(by_row, main, row_axis, x, size, names[main])
    special = frozenset() if x.is_floating_point() else frozenset(special_ids(config))
    example = Example(values, type(batch), by_row, by_token, key, kind, special=special)
    return _cut(_filled(example, main, names, config), config, conventions)


def _kind(model: nn.Module, x: Tensor, row_axis: int, marks: Tensor, name: str, kind: str) -> str:
    """Return what a mask's ones mean; UserError if its values do not fit."""
    if kind == "?":
        kind = kind_of(model, x if row_axis == 0 else x.transpose(0, 1), marks, name)
    if kind in ("real", "padding"):
        check_mask(marks, name or "mask", kind)
    return kind


def _check_rows(
    by_row: dict[Key, int], main: Key, axis: int, x: Tensor, size: int, name: str
) -> None:
    """Record the main input's row axis in `by_row`; UserError if its length is not `size`."""
    if x.shape[axis : axis + 1] == (size,):
        by_row[main] = axis
    if main not in by_row:
        raise UserError(f"{name} has the shape {[*x.shape]}, but the mask has {size} rows")


def _names(values: Mapping[Key, Any], parameters: Sequence[str]) -> dict[Key, str]:
    """Return the names of inputs, including positional ones; UserError for a cache."""
    if values.get("past_key_values") is not None:
        raise UserError("past_key_values: a cache holds tokens of earlier calls; leave it out")
    return {
        k: parameters[k] if isinstance(k, int) and k < len(parameters) else str(k) for k in values
    }


def _main_input(values: Mapping[Key, Any], names: Mapping[Key, str], mask: Key) -> Key:
    """Return the key of the input that holds tokens or features; UserError if there is none."""
    inputs = [k for k in names if k != mask and isinstance(values[k], Tensor) and values[k].ndim]
    inputs = [k for k in inputs if "mask" not in names[k]] or inputs
    if not inputs:
        raise UserError(f"the inputs have no tensor: {', '.join(names.values()) or 'nothing'}")
    main = min(inputs, key=lambda k: (*_TOKENS, names[k]).index(names[k]))
    if not values[main].numel():
        raise UserError(f"{names[main]} is empty: it has the shape {[*values[main].shape]}")
    return main


def _filled(example: Example, main: Key, names: Mapping[Key, str], config: Any) -> Example:
    """Return the example with the side of its padding and the values under it filled in."""
    values, pads = example.values, ~example.real
    pad, x = getattr(config, "pad_token_id", None), values[main]
    if isinstance(pad, int) and pads.any() and torch.equal(x == pad, ~pads):
        raise UserError(
            f"{names.get(example.mask, 'mask')} marks only the padding of {names[main]} "
            f"(pad_token_id {pad}) as real: invert it"
        )
    on_the_left = bool(example.length) and int(pads[:, 0].sum()) > int(pads[:, -1].sum())
    fill = {k: _fill(values[k], pads, pad) for k in example.content if k in example.tokens}
    others = [k for k in example.tokens if "mask" in names.get(k, "") and k != example.mask]
    fill |= {k: under_padding(values[k], pads, ~pads) for k in others}
    side = "left" if on_the_left else "right"
    return replace(example, side=side, fill=fill, has_padding=bool(pads.any()))


def _axes(
    values: Mapping[Key, Any], names: Mapping[Key, str], config: Any, size: int, length: int
) -> tuple[dict[Key, int], dict[Key, int]]:
    """Return the batch axis and the token axis of each input that has them."""
    by_row: dict[Key, int] = {}
    by_token: dict[Key, int] = {}
    encodes = getattr(config, "is_encoder_decoder", False) or "src" in names.values()
    of_decoder = ("decoder", "labels", "tgt") if encodes else ("decoder",)
    for k, x in values.items():
        shape = [*x.shape] if isinstance(x, Tensor) else []
        if length and size != length and shape[:2] == [length, size]:
            by_row[k], by_token[k] = 1, 0
            continue
        if shape[:1] == [size]:
            by_row[k] = 0
        axes = [n for n in range(1, len(shape)) if shape[n] == length]
        if axes and shape[0] in (1, size) and not names.get(k, "").startswith(of_decoder):
            by_token[k] = axes[0]
    return by_row, by_token


def special_ids(config: Any) -> set[int]:
    """Return the ids of placeholders and marks in a config and in the configs inside it."""
    entries = config.to_dict() if hasattr(config, "to_dict") else {}
    ids: set[int] = set()
    todo = [entries] if isinstance(entries, dict) else []
    while todo:
        for name, value in todo.pop().items():
            if isinstance(value, dict):
                todo.append(value)
            elif str(name).endswith(("token_id", "token_index", "token_ids")):
                several = value if isinstance(value, list) else [value]
                ids |= {number for number in several if type(number) is int and number >= 0}
    return ids


def values_of(batch: Any, device: torch.device) -> dict[Key, Any]:
    """Return a batch's inputs by name or position, on a device."""
    several = batch if isinstance(batch, tuple | list) else [batch]
    inputs = batch if isinstance(batch, Mapping) else dict(enumerate(several))
    return {k: x.to(device) if isinstance(x, Tensor) else x for k, x in inputs.items()}


def _fill(x: Tensor, pads: Tensor, pad: Any) -> int | float:
    """Return the value under the batch's padding, else the config's `pad_token_id`, else 0."""
    if x.shape[:2] == pads.shape and bool(pads.any()):
        return x[pads].flatten()[0].item()
    return pad if isinstance(pad, int) and not x.is_floating_point() else 0


def _token_axis(
    model: nn.Module, x: Tensor, name: str, mask: Tensor | None, rows: int | None
) -> int | None:
    """Return the token axis of the main input, or None if it has none."""
    if rows == 1:
        return 0
    if mask is not None and mask.ndim == 2:
        size, length = mask.shape
        axes = [n for n in range(1, x.ndim) if x.shape[n] == length]
        if x.shape[:2] == (length, size) and size != length:
            return 0
        if not axes:
            raise UserError(f"{name} {[*x.shape]} has no token axis of its mask's length {length}")
        return axes[0]
    if mask is not None and x.ndim > 1:
        if rows is None and len(mask) != x.shape[0] and len(mask) == x.shape[1]:
            return 0
        longest = float(mask.max())  # lengths in positions, or as shares of the longest
        sizes = {n: x.shape[n] for n in range(1, x.ndim)}
        if longest > 1 and sizes[1] != longest:
            fits = [n for n, size in sizes.items() if size == longest]
            return next(iter(fits or (n for n, size in sizes.items() if size > longest)), 1)
    first = batch_first(model) if rows is None else None
    if first is not None and x.ndim == 2 and x.is_floating_point():
        raise UserError(
            f"{name} {[*x.shape]} is one row to a {type(model).__name__}: pass a batch of rows, "
            f"{'[rows, positions, features]' if first else '[positions, rows, features]'}"
        )
    if first is False:
        return 0
    bins = getattr(getattr(model, "config", None), "num_mel_bins", None)
    if name == "input_features" and x.ndim == 3 and x.shape[1] == bins:
        return 2
    if x.ndim == 2:  # floats are features of a row, unless a mask or the name says it is a sequence
        is_sequence = mask is not None or not x.is_floating_point() or name == "input_values"
    else:
        is_sequence = x.ndim == 3 and x.is_floating_point()
    return 1 if is_sequence else None


def batch_first(model: nn.Module) -> bool | None:
    """Return whether torch's recurrent or attention layers take [rows, positions, ...] inputs.

    None if the model has none of them, as its code may transpose the input; False if they differ.
    """
    if not type(model).__module__.startswith("torch.nn"):
        return None
    kinds = (nn.RNNBase, nn.MultiheadAttention)
    settings = [module.batch_first for module in model.modules() if isinstance(module, kinds)]
    return all(settings) if settings else None


def _cut(example: Example, config: Any, conventions: Conventions) -> Example:
    """Return the longest rows in the batch's order, cut to the real positions of the longest."""
    total, positions = example.size, conventions.max_positions
    longest = example.real.sum(1).argsort(descending=True, stable=True)[: conventions.max_rows]
    order = longest.sort().values
    example = example.change(example.rows, lambda k, x: x.index_select(example.rows[k], order))
    example = replace(example, numbers=(*order.tolist(),), total=total)
    if example.length:
        lead = example.real[example.lead]
        start, stop = (int(n) for n in lead.nonzero().flatten()[[0, -1]])
        floats = [example.values[k] for k in example.content if k in example.tokens]
        floats = [x for x in floats if x.is_floating_point()]
        config = getattr(config, "text_config", config)
        limits = [] if floats else [getattr(config, name, None) for name in _LIMITS]
        limits = [n for n in limits if isinstance(n, int) and n > 0]  # XLNet has -1
        most = min([positions, *(n * 2 // 3 for n in limits)])
        if any(x.ndim == 2 or x.shape[1] == 1 for x in floats):
            most = positions * SAMPLES
        if example.side == "left":
            start = max(start, stop + 1 - most)
        example = example.cut(example.tokens, start, min(stop + 1, start + most))
    return example.with_more_rows(FEWEST_ROWS)
