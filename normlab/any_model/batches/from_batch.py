"""Turns a user's batch into an example: finds the row axis, the position axis and the mask."""

import inspect
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from normlab.any_model.batches.axes import Axes, MainShape, axes_of_inputs, main_axes
from normlab.any_model.batches.example import (
    Example,
    Forward,
    InputKey,
    ModelFailed,
    error_of_user_code,
    message_of,
)
from normlab.any_model.batches.masks import (
    MaskArgument,
    add_mask,
    checked_kind,
    find_mask,
    mask_option,
    under_padding,
)
from normlab.errors import UserError

_TOKENS = ("input_ids", "inputs_embeds", "input_values", "input_features")
_LIMITS = ("max_position_embeddings", "n_positions", "max_source_positions")
"""Config entries that limit the number of positions, padding included."""
SAMPLES = 320
"""The number of audio samples per position: 20 ms at 16 kHz, as in most speech models."""
FEWEST_ROWS = 3  # not two, because batch norm maps any two values to -1 and 1
KEPT = 8  # the largest number of batches used for statistics and calibration


def first_batches(batches: Any) -> list[Any]:
    """Return the first `KEPT` batches of an iterable, or a list of the one batch that is passed.

    Random states stay as they are, although a DataLoader draws a seed, and shuffling more numbers.
    Raises UserError if there is no batch, or if one cannot be created.
    """
    tensors = isinstance(batches, tuple) and any(isinstance(item, Tensor) for item in batches)
    if tensors or isinstance(batches, Mapping | Tensor):
        return [batches]
    if not isinstance(batches, Iterable):
        raise UserError(f"batches is a {type(batches).__name__}; pass a list of inputs")
    first: list[Any] = []
    try:
        with _random_states_restored():
            first.extend(islice(batches, KEPT))
    except Exception as error:  # the user's code may raise anything
        raise error_of_user_code(f"batch {len(first) + 1} of the inputs", error) from error
    if not first:
        raise UserError("batches is empty; if it is a generator, it is already used up")
    return first


@contextmanager
def _random_states_restored() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        states = np.random.get_state(), random.getstate()
        try:
            yield
        finally:
            np.random.set_state(states[0])
            random.setstate(states[1])


def call_with(model: nn.Module, batch: Any) -> Any:
    """Call a model with a batch, which is a dict, a tuple or one tensor."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def run_batch(model: nn.Module, batch: Any, forward: Forward | None = None) -> Any:
    """Return a model's output for a user's batch.

    Raises ModelFailed if the model raises an exception.
    """
    try:
        return (forward or call_with)(model, batch)
    except Exception as error:
        reason = f"{type(error).__name__}: {message_of(error)}"
        raise ModelFailed(f"the model cannot run a batch: {reason}") from error


@dataclass(frozen=True)
class Conventions:
    """How to read a user's batch. `normlab.inspect` explains each field."""

    forward: Forward | None = None
    mask: MaskArgument = None
    axes: Axes = field(default_factory=Axes)
    max_rows: int = 4
    max_positions: int = 128


def example_of(
    model: nn.Module,
    batch: Any,
    conventions: Conventions = Conventions(),
) -> Example:
    """Return the longest rows of a batch as an example, cut to the real positions of the longest.

    Raises UserError with a one-sentence message if the inputs cannot be examined.
    """
    config = getattr(model, "config", None)
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    values = inputs_of(batch, device)
    by_position = not conventions.forward  # otherwise the user's function passes the inputs
    parameters = [*inspect.signature(model.forward).parameters] if by_position else []
    names = _names(values, parameters)
    mask = find_mask(values, names, mask_option(conventions.mask, names.values(), device))
    main = _main_input(values, names, mask and mask.key)
    x, marks = values[main], values[mask.key] if mask else None
    main_rows, main_positions = main_axes(model, x, names[main], marks, conventions.axes)
    length = 0 if main_positions is None else x.shape[main_positions]
    size = x.shape[main_rows] if marks is None else len(marks)
    if mask and marks is not None:
        by_rows = x if main_rows == 0 else x.transpose(0, 1)
        name = names.get(mask.key, "")
        mask = mask._replace(kind=checked_kind(model, by_rows, marks, name, mask.kind))
    # the states of another encoder have their own mask, which is not `attention_mask`
    elif length and not names[main].startswith("encoder_"):
        real = torch.ones(size, length, dtype=torch.long, device=device)
        mask = add_mask(values, names, parameters, real)
    axes = axes_of_inputs(values, names, config, MainShape(x.ndim, main_rows, size, length))
    if main_positions is not None:
        axes.positions[main] = main_positions
    if x.shape[main_rows : main_rows + 1] == (size,):
        axes.rows[main] = main_rows
    if main not in axes.rows:
        raise UserError(f"{names[main]} has shape {[*x.shape]}, but the mask has {size} rows")
    special = frozenset() if x.is_floating_point() else frozenset(special_ids(config))
    example = Example(values, type(batch), *axes, names=names, special=special)
    if mask:
        example = replace(example, mask=mask.key, mask_kind=mask.kind)
    return _cut(_filled(example, main, names, config), config, conventions)


def input_without_numbers(row: Example) -> str | None:
    """Return the name of an input with NaN or infinities, except an additive mask, or None."""
    for key, x in row.values.items():
        if not isinstance(x, Tensor) or not x.is_floating_point() or bool(x.isfinite().all()):
            continue
        name = row.names.get(key, "mask")
        is_mask = "mask" in name or not (x[x != -torch.inf]).any()
        if bool(x.isnan().any()) or not is_mask:
            return name
    return None


def _names(values: Mapping[InputKey, Any], parameters: Sequence[str]) -> dict[InputKey, str]:
    """Return the names of inputs. Positional inputs are named after the model's parameters.

    Raises UserError if an input is a cache.
    """
    if values.get("past_key_values") is not None:
        raise UserError("past_key_values is a cache with tokens from earlier calls; omit it")
    return {
        k: parameters[k] if isinstance(k, int) and k < len(parameters) else str(k) for k in values
    }


def _main_input(
    values: Mapping[InputKey, Any], names: Mapping[InputKey, str], mask: InputKey
) -> InputKey:
    """Return the key of the input that holds tokens or features.

    Raises UserError if there is none, or if it is empty.
    """
    inputs = [k for k in names if k != mask and isinstance(values[k], Tensor) and values[k].ndim]
    inputs = [k for k in inputs if "mask" not in names[k]] or inputs
    if not inputs:
        raise UserError(f"the inputs have no tensor: {', '.join(names.values()) or 'nothing'}")
    main = min(inputs, key=lambda k: (*_TOKENS, names[k]).index(names[k]))
    if not values[main].numel():
        raise UserError(f"{names[main]} is empty (its shape is {[*values[main].shape]})")
    return main


def _filled(
    example: Example, main: InputKey, names: Mapping[InputKey, str], config: Any
) -> Example:
    """Return the example with the side of its padding, and its inputs' values under padding.

    Raises UserError if the mask marks the padding tokens, and only these, as real.
    """
    values, pads = example.values, ~example.real
    pad, x = getattr(config, "pad_token_id", None), values[main]
    if isinstance(pad, int) and pads.any() and torch.equal(x == pad, ~pads):
        raise UserError(
            f"{names.get(example.mask, 'mask')} marks only the padding of {names[main]} "
            f"(pad_token_id {pad}) as real; invert it"
        )
    on_the_left = bool(example.length) and int(pads[:, 0].sum()) > int(pads[:, -1].sum())
    fill = {k: _fill(values[k], pads, pad) for k in example.content if k in example.position_axes}
    others = [k for k in example.position_axes if "mask" in names.get(k, "") and k != example.mask]
    fill |= {k: under_padding(values[k], pads, ~pads) for k in others}
    side = "left" if on_the_left else "right"
    return replace(example, side=side, fill=fill, has_padding=bool(pads.any()))


def special_ids(config: Any) -> set[int]:
    """Return the ids of special tokens in a config and its nested configs."""
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


def inputs_of(batch: Any, device: torch.device) -> dict[InputKey, Any]:
    """Move a batch's inputs to a device, and return them keyed by name or position."""
    several = batch if isinstance(batch, tuple | list) else [batch]
    inputs = batch if isinstance(batch, Mapping) else dict(enumerate(several))
    return {k: x.to(device) if isinstance(x, Tensor) else x for k, x in inputs.items()}


def _fill(x: Tensor, pads: Tensor, pad: Any) -> int | float:
    """Return an input's value under padding.

    If the batch has no padding, this is `pad`, the config's `pad_token_id`. It is 0 for floats, or
    if the config has no such entry.
    """
    if x.shape[:2] == pads.shape and bool(pads.any()):
        return x[pads].flatten()[0].item()
    return pad if isinstance(pad, int) and not x.is_floating_point() else 0


def _cut(example: Example, config: Any, conventions: Conventions) -> Example:
    """Return the longest rows in the batch's order, cut to the real positions of the longest.

    Rows are added if there are fewer than `FEWEST_ROWS`.
    """
    total, positions = example.size, conventions.max_positions
    longest = example.real.sum(1).argsort(descending=True, stable=True)[: conventions.max_rows]
    order = longest.sort().values
    axes = example.row_axes
    example = example.change(axes, lambda k, x: x.index_select(axes[k], order))
    example = replace(example, row_indices=(*order.tolist(),), total=total)
    if example.length:
        real = example.real[example.longest]
        start, stop = (int(n) for n in real.nonzero().flatten()[[0, -1]])
        floats = [example.values[k] for k in example.content if k in example.position_axes]
        floats = [x for x in floats if x.is_floating_point()]
        config = getattr(config, "text_config", config)
        limits = [] if floats else [getattr(config, name, None) for name in _LIMITS]
        limits = [n for n in limits if isinstance(n, int) and n > 0]  # XLNet has -1
        most = min([positions, *(n * 2 // 3 for n in limits)])
        if any(x.ndim == 2 or x.shape[1] == 1 for x in floats):
            most = positions * SAMPLES
        if example.side == "left":
            start = max(start, stop + 1 - most)
        example = example.select_positions(start, min(stop + 1, start + most))
    return example.with_more_rows(FEWEST_ROWS)
