"""Turns a user's batch into an example: finds the row and token axes and the padding mask."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from normlab.any_model.example import Example, Forward, Key
from normlab.errors import UserError

MASKS = {
    **dict.fromkeys(("attention_mask", "padding_mask", "input_mask", "mask"), "real"),
    **dict.fromkeys(("input_features_mask", "feature_attention_mask"), "real"),
    **dict.fromkeys(("src_key_padding_mask", "key_padding_mask"), "padding"),
    **dict.fromkeys(("lengths", "length", "input_lengths", "seq_lengths"), "lengths"),
}
_MADE = ("attention_mask", "src_key_padding_mask")
"""Masks to add if the batch has none and the model takes one: they mark all positions as real."""
_TOKENS = ("input_ids", "inputs_embeds", "input_values", "input_features")
_LIMITS = ("max_position_embeddings", "n_positions", "max_source_positions")
"""Entries of a config that limit the number of positions, padding included."""
SAMPLES = 320
"""Audio samples that count as one position: 20 ms at 16 kHz, a frame of most speech models."""
KEPT = 8  # at most so many batches are used for statistics and calibration


def first_batches(batches: Any) -> list[Any]:
    """Return up to `KEPT` batches of an iterable, or the one batch given; UserError for none."""
    tensors = isinstance(batches, tuple) and any(isinstance(each, Tensor) for each in batches)
    if tensors or isinstance(batches, Mapping | Tensor):
        return [batches]
    if not isinstance(batches, Iterable):
        raise UserError(f"batches is a {type(batches).__name__}: give a list of inputs")
    found = list(islice(batches, KEPT))
    if not found:
        raise UserError("batches is empty; if it is a generator, it is already used up")
    return found


def example_of(
    model: nn.Module,
    batch: Any,
    *,
    forward: Forward | None = None,
    mask: str | int | Tensor | None = None,
    rows: int = 4,
    tokens: int = 128,
) -> Example:
    """Return a batch's longest rows as an example, cut to the real positions of the longest one.

    Raises UserError with a one-sentence message if the inputs cannot be examined.
    """
    names = [] if forward else [*inspect.signature(model.forward).parameters]
    config = getattr(model, "config", None)
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    values = values_of(batch, device)
    if values.get("past_key_values") is not None:
        raise UserError("past_key_values: a cache holds tokens of earlier calls; leave it out")
    named = {k: names[k] if isinstance(k, int) and k < len(names) else str(k) for k in values}
    key, kind = _mask(values, named, mask.to(device) if isinstance(mask, Tensor) else mask)
    inputs = [k for k in named if k != key and isinstance(values[k], Tensor) and values[k].ndim]
    if not inputs:
        raise UserError(f"the inputs have no tensor: {', '.join(named.values()) or 'nothing'}")
    main = min(inputs, key=lambda k: (*_TOKENS, named[k]).index(named[k]))
    x, marks = values[main], values[key] if kind else None
    if not x.numel():
        raise UserError(f"{named[main]} is empty: it has the shape {[*x.shape]}")
    axis = _token_axis(model, x, named[main], marks)
    length = 0 if axis is None else x.shape[axis]
    size = x.shape[int(axis == 0)] if marks is None else len(marks)
    made = next((name for name in _MADE if name in names and name not in named.values()), None)
    if not kind and length and made:
        key, kind = made, MASKS[made]
        real = torch.ones(size, length, dtype=torch.long, device=device)
        values[made], named[made] = real if kind == "real" else real == 0, made
    by_row: dict[Key, int] = {}
    by_token: dict[Key, int] = {}
    is_encoder_decoder = getattr(config, "is_encoder_decoder", False)
    of_decoder = ("decoder", "labels") if is_encoder_decoder else ("decoder",)
    for k, each in values.items():
        shape = [*each.shape] if isinstance(each, Tensor) else []
        if length and size != length and shape[:2] == [length, size]:
            by_row[k], by_token[k] = 1, 0
            continue
        if shape[:1] == [size]:
            by_row[k] = 0
        axes = [n for n in range(1, len(shape)) if shape[n] == length]
        if axes and shape[0] in (1, size) and not named.get(k, "").startswith(of_decoder):
            by_token[k] = axes[0]
    if main not in by_row:
        raise UserError(f"{named[main]} has the shape {[*x.shape]}, but the mask has {size} rows")
    example = Example(values, type(batch), by_row, by_token, key, kind)
    pads = ~example.real
    pad = getattr(config, "pad_token_id", None)
    if isinstance(pad, int) and pads.any() and torch.equal(x == pad, ~pads):
        raise UserError(
            f"{named.get(key, 'mask')} marks only the padding of {named[main]} (pad_token_id "
            f"{pad}) as real: invert it"
        )
    left = bool(length) and int(pads[:, 0].sum()) > int(pads[:, -1].sum())
    fill = {k: _fill(values[k], pads, pad) for k in example.content if k in by_token}
    example = replace(
        example, side="left" if left else "right", fill=fill, has_padding=bool(pads.any())
    )
    return _cut(example, config, rows, tokens)


def values_of(batch: Any, device: torch.device) -> dict[Key, Any]:
    """Return a batch's inputs by name or position, on a device."""
    several = batch if isinstance(batch, tuple | list) else [batch]
    given = batch if isinstance(batch, Mapping) else dict(enumerate(several))
    return {k: x.to(device) if isinstance(x, Tensor) else x for k, x in given.items()}


def _fill(x: Tensor, pads: Tensor, pad: Any) -> int | float:
    """Return the value under the batch's padding, else the config's `pad_token_id`, else 0."""
    if x.shape[:2] == pads.shape and bool(pads.any()):
        return x[pads].flatten()[0].item()
    return pad if isinstance(pad, int) and not x.is_floating_point() else 0


def _mask(values: dict[Key, Any], named: Mapping[Key, str], mask: Any) -> tuple[Key, str]:
    """Return the key and kind of the mask of real tokens; a mask tensor is added to `values`."""
    if mask is None:
        keys = [k for k, name in named.items() if name in MASKS and isinstance(values[k], Tensor)]
        if not keys:
            return None, ""
    elif isinstance(mask, Tensor):
        keys, values[None] = [None], mask
    else:
        keys = [key for key, name in named.items() if mask in (key, name)]
        if not keys:
            raise UserError(f"mask={mask!r}: the inputs are {', '.join(named.values())}")
    key = keys[0]
    name, given = named.get(key, "mask"), values[key]
    if not isinstance(given, Tensor) or given.ndim not in (1, 2):
        shape = [*given.shape] if isinstance(given, Tensor) else type(given).__name__
        raise UserError(f"{name} is {shape}: a mask has the shape [rows, positions]")
    if given.ndim == 1:
        return key, "lengths"
    kind = "padding" if MASKS.get(name) == "padding" else "real"
    odd = given[(given != 0) & (given != 1)]
    if len(odd) and not (kind == "padding" and bool((odd == -torch.inf).all())):
        raise UserError(
            f"{name} has the value {odd[0].item():.4g}: give 1 for real tokens and 0 for padding "
            "(a mask that is added to attention scores cannot be used here)"
        )
    empty = ((given != 0) == (kind == "padding")).all(1).nonzero().flatten().tolist()
    if empty:
        marks = "True for padding" if kind == "padding" else "1 for real tokens"
        raise UserError(f"{name}: row {empty[0]} is all padding; is it inverted? Give {marks}")
    return key, kind


def _token_axis(model: nn.Module, x: Tensor, name: str, mask: Tensor | None) -> int | None:
    """Return the token axis of the main input, or None if it has none."""
    if mask is not None and mask.ndim == 2:
        size, length = mask.shape
        axes = [n for n in range(1, x.ndim) if x.shape[n] == length]
        if x.shape[:2] == (length, size) and size != length:
            return 0
        if not axes:
            raise UserError(f"{name} {[*x.shape]} has no token axis of its mask's length {length}")
        return axes[0]
    kinds = (nn.RNNBase, nn.MultiheadAttention)
    if type(model).__module__.startswith("torch.nn") and any(
        isinstance(module, kinds) and not module.batch_first for module in model.modules()
    ):
        return 0
    bins = getattr(getattr(model, "config", None), "num_mel_bins", None)
    if name == "input_features" and x.ndim == 3 and x.shape[1] == bins:
        return 2
    if x.ndim == 2:  # floats are features of a row, unless a mask or the name shows a sequence
        is_sequence = mask is not None or not x.is_floating_point() or name == "input_values"
    else:
        is_sequence = x.ndim == 3 and x.is_floating_point()
    return 1 if is_sequence else None


def _cut(example: Example, config: Any, rows: int, tokens: int) -> Example:
    """Return the longest rows, cut to the real positions of the first of them."""
    order = example.real.sum(1).argsort(descending=True, stable=True)[:rows]
    example = example.change(example.rows, lambda k, x: x.index_select(example.rows[k], order))
    if example.length:
        start, stop = (int(n) for n in example.real[0].nonzero().flatten()[[0, -1]])
        floats = [example.values[k] for k in example.content if k in example.tokens]
        floats = [x for x in floats if x.is_floating_point()]
        config = getattr(config, "text_config", config)
        limits = [] if floats else [getattr(config, name, None) for name in _LIMITS]
        limits = [n for n in limits if isinstance(n, int) and n > 0]  # XLNet has -1
        longest = min([tokens, *(n * 2 // 3 for n in limits)])
        if any(x.ndim == 2 or x.shape[1] == 1 for x in floats):
            longest = tokens * SAMPLES
        if example.side == "left":
            start = max(start, stop + 1 - longest)
        example = example.cut(example.tokens, start, min(stop + 1, start + longest))
    if example.size == 1:  # add a second row, with other values
        double = example.change(example.rows, lambda k, x: torch.cat([x, x], example.rows[k]))
        return double.with_other_rows()
    return example
