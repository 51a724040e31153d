"""From a user's batches to an example: which axes are rows and tokens, and what marks padding."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from normlab.inspect.foreign.example import Example, Forward, Key

MASKS = {
    **dict.fromkeys(("attention_mask", "padding_mask", "input_mask", "mask"), "real"),
    **dict.fromkeys(("src_key_padding_mask", "key_padding_mask"), "padding"),
    **dict.fromkeys(("lengths", "length", "input_lengths", "seq_lengths"), "lengths"),
}
_TOKENS = ("input_ids", "inputs_embeds", "input_values", "input_features")
SAMPLES = 320
"""Audio samples that count as one position: 20 ms at 16 kHz, a frame of most speech models."""
KEPT = 8  # batches, for the questions about statistics


def first_batches(batches: Any) -> list[Any]:
    """Return the first batches of an iterable, or the only one; ValueError if there is none."""
    alone = isinstance(batches, Mapping | Tensor) or (
        isinstance(batches, tuple) and any(isinstance(each, Tensor) for each in batches)
    )
    if not alone and not isinstance(batches, Iterable):
        raise ValueError(f"batches is a {type(batches).__name__}: give a list of inputs")
    found = [batches] if alone else list(islice(batches, KEPT))
    if not found:
        raise ValueError("batches is empty; if it is a generator, it is already used up")
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
    """Return the example of a batch; its longest rows, cut to the extent of the first.

    Raises ValueError, in one sentence, for inputs that cannot be examined.
    """
    names = _names(model) if forward is None else []
    config = getattr(model, "config", None)
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    values, form = _values(batch)
    values = {k: x.to(device) if isinstance(x, Tensor) else x for k, x in values.items()}
    if values.get("past_key_values") is not None:
        raise ValueError("past_key_values: a cache holds tokens of former calls; leave it out")
    named = {k: names[k] if isinstance(k, int) and k < len(names) else str(k) for k in values}
    key, kind = _mask(values, named, mask)
    inputs = [k for k in named if k != key and isinstance(values[k], Tensor) and values[k].ndim]
    if not inputs:
        raise ValueError(f"the inputs have no tensor: {', '.join(named.values()) or 'nothing'}")
    main = min(inputs, key=lambda k: (*_TOKENS, named[k]).index(named[k]))
    x, marks = values[main], values[key] if kind else None
    axis = _token_axis(model, x, named[main], marks)
    length = 0 if axis is None else x.shape[axis]
    size = x.shape[int(axis == 0)] if marks is None else len(marks)
    made = next((n for n in ("attention_mask", "src_key_padding_mask") if n in names), None)
    if not kind and length and made and made not in named.values():
        key, kind = made, MASKS[made]
        values[key] = torch.ones(size, length, dtype=torch.long, device=device)
        if kind == "padding":
            values[key] = values[key] == 0
    named = {**named, key: made or "mask"} if key not in named else named
    apart = ("decoder", "labels") if getattr(config, "is_encoder_decoder", False) else ("decoder",)
    by_row, by_token = _axes(values, named, size, length, apart)
    if main not in by_row:
        raise ValueError(f"{named[main]} has the shape {[*x.shape]}, and the mask {size} rows")
    example = Example(values, form, by_row, by_token, key, kind)
    pads = ~example.real
    if length and int(pads[:, 0].sum()) > int(pads[:, -1].sum()):
        example = replace(example, side="left")
    fill = {k: _fill(values[k], pads, config) for k in example.content if k in by_token}
    example = replace(example, fill=fill, has_padding=bool(pads.any()))
    return _cut(example, config, rows, tokens)


def _fill(x: Tensor, pads: Tensor, config: Any) -> int | float:
    """Return the value under a batch's padding, or what the config gives as one."""
    if x.shape[:2] == pads.shape and bool(pads.any()):
        return x[pads].flatten()[0].item()
    pad = getattr(config, "pad_token_id", None)
    return pad if isinstance(pad, int) and not x.is_floating_point() else 0


def _names(model: nn.Module) -> list[str]:
    """Return the names of the arguments of a model's forward."""
    try:
        return [*inspect.signature(model.forward).parameters]
    except (TypeError, ValueError):
        return []


def _values(batch: Any) -> tuple[dict[Key, Any], str]:
    if isinstance(batch, Mapping):
        return dict(batch), "dict"
    if isinstance(batch, tuple | list):
        return dict(enumerate(batch)), "tuple"
    return {0: batch}, "tensor"


def _mask(values: dict[Key, Any], named: Mapping[Key, str], mask: Any) -> tuple[Key, str]:
    """Return the input that marks real tokens, and how; a tensor is added to `values`."""
    if isinstance(mask, Tensor):
        device = next(x.device for x in values.values() if isinstance(x, Tensor))
        values[None] = mask.to(device)
        key: Key = None
    elif mask is not None:
        key = next((k for k, name in named.items() if mask in (k, name)), None)
        if key is None:
            raise ValueError(f"mask={mask!r}: the inputs are {', '.join(named.values())}")
    else:
        keys = [k for k, name in named.items() if name in MASKS and isinstance(values[k], Tensor)]
        if not keys:
            return None, ""
        key = keys[0]
    name, given = named.get(key, "mask"), values[key]
    if not isinstance(given, Tensor) or given.ndim not in (1, 2):
        shape = [*given.shape] if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"{name} is {shape}: a mask has the shape [rows, positions]")
    if given.ndim == 1:
        return key, "lengths"
    kind = MASKS.get(name, "real")
    kind = "real" if kind == "lengths" else kind
    odd = given[(given != 0) & (given != 1)]
    if len(odd) and not (kind == "padding" and bool((odd == -torch.inf).all())):
        raise ValueError(
            f"{name} has the value {odd[0].item():.4g}: give 1 for real tokens and 0 for padding "
            "(what a model adds to its attention scores is not such a mask)"
        )
    real = given == 0 if kind == "padding" else given != 0
    empty = (~real.any(1)).nonzero().flatten().tolist()
    if empty:
        marks = "True for padding" if kind == "padding" else "1 for real tokens"
        raise ValueError(
            f"{name}: row {empty[0]} is all padding; is the mask inverted? It has {marks}"
        )
    return key, kind


def _token_axis(model: nn.Module, x: Tensor, name: str, mask: Tensor | None) -> int | None:
    """Return the token axis of the main input, or None if it has none."""
    if mask is not None and mask.ndim == 2:
        size, length = mask.shape
        if x.shape[:2] == (length, size) and size != length:
            return 0
        axis = next((n for n in range(1, x.ndim) if x.shape[n] == length), None)
        if axis is None:
            raise ValueError(f"{name} has the shape {[*x.shape]}, its mask {[*mask.shape]}")
        return axis
    bins = getattr(getattr(model, "config", None), "num_mel_bins", None)
    if name == "input_features" and x.ndim == 3 and x.shape[1] == bins:
        return 2
    if _batch_second(model):
        return 0
    if x.ndim == 2:
        sequence = not x.is_floating_point() or name == "input_values" or mask is not None
        return 1 if sequence else None
    return 1 if x.ndim == 3 and x.is_floating_point() else None


def _batch_second(model: nn.Module) -> bool:
    """Return whether a module of torch itself takes its rows on the second axis."""
    if not type(model).__module__.startswith("torch.nn"):
        return False
    kinds = (nn.RNNBase, nn.MultiheadAttention)
    return any(isinstance(m, kinds) and not m.batch_first for m in model.modules())


def _axes(
    values: Mapping[Key, Any],
    named: Mapping[Key, str],
    size: int,
    length: int,
    apart: tuple[str, ...],
) -> tuple[dict[Key, int], dict[Key, int]]:
    """Return the batch axis and the token axis of each input that has one."""
    rows: dict[Key, int] = {}
    tokens: dict[Key, int] = {}
    for key, x in values.items():
        if not isinstance(x, Tensor) or not x.ndim:
            continue
        if length and size != length and x.shape[:2] == (length, size):
            rows[key], tokens[key] = 1, 0
            continue
        if x.shape[0] == size:
            rows[key] = 0
        if length and (key in rows or x.shape[0] == 1) and not named[key].startswith(apart):
            axis = next((n for n in range(1, x.ndim) if x.shape[n] == length), None)
            if axis is not None:
                tokens[key] = axis
    return rows, tokens


def _cut(example: Example, config: Any, rows: int, tokens: int) -> Example:
    """Return the longest rows, cut to the real positions of the first of them."""
    order = example.real.sum(1).argsort(descending=True, stable=True)[:rows]
    example = example.change(example.rows, lambda k, x: x.index_select(example.rows[k], order))
    if example.length:
        start, stop = (int(n) for n in example.real[0].nonzero().flatten()[[0, -1]])
        config = getattr(config, "text_config", config)
        names = ("max_position_embeddings", "n_positions", "max_source_positions")
        limits = [getattr(config, name, None) for name in names]
        longest = min(tokens, *(n * 2 // 3 for n in limits if isinstance(n, int)), tokens)
        if any(x.is_floating_point() and x.ndim == 2 for x in example.inputs):
            longest = tokens * SAMPLES
        if example.side == "left":
            start = max(start, stop + 1 - longest)
        example = example.cut(example.tokens, start, min(stop + 1, start + longest))
    if example.size == 1:  # a second row, of other values
        double = example.change(example.rows, lambda k, x: torch.cat([x, x], example.rows[k]))
        return double.with_other_rows()
    return example
