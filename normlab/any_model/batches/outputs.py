"""Selects the outputs of a model to compare, and names them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from normlab.errors import UserError

Outputs = dict[str, Tensor]
"""Float outputs keyed by names such as `logits` or `hidden_states[1]`, the main output first."""
_MAIN = ("logits", "last_hidden_state")
_STATES = ("past_key_values", "cache", "mems")
"""Parts of the names of outputs that are only passed to a later call."""


def outputs_of(output: Any) -> Outputs:
    """Return the outputs to compare. Raise UserError if there is no float tensor that has rows."""
    outputs = {
        name: x
        for name, x in _tensors_by_name("", output)
        if x.is_floating_point() and x.ndim and not any(state in name for state in _STATES)
    }
    if not outputs:
        raise UserError(
            f"the model returns a {type(output).__name__} without a float tensor that has rows; "
            "return one with forward=lambda model, batch: ..."
        )
    main = next((name for name in _MAIN if name in outputs), next(iter(outputs)))
    return {main: outputs[main], **outputs}


def _tensors_by_name(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in nested outputs with their names in Python: `hidden_states[1]`."""
    if isinstance(value, nn.utils.rnn.PackedSequence):
        value = nn.utils.rnn.pad_packed_sequence(value, batch_first=True)[0]
    if isinstance(value, Tensor):
        yield (
            name or "output",
            torch.nested.to_padded_tensor(value, 0) if value.is_nested else value,
        )
    elif isinstance(value, Mapping):
        for key, item in value.items():
            inner = str(key) if not name else f"{name}.{key}"
            yield from _tensors_by_name(inner, item)
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from _tensors_by_name(f"{name}[{number}]", item)
    elif is_dataclass(value):
        for field in fields(value):
            inner = f"{name}.{field.name}".lstrip(".")
            yield from _tensors_by_name(inner, getattr(value, field.name))


def output_tensors(output: Any) -> list[Tensor]:
    """Return all tensors of a model's output, also of dataclasses and of types known to pytree."""
    return [x for leaf in tree_leaves(output) for _, x in _tensors_by_name("", leaf)]


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested dicts, tuples and lists, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors(item)


def first_float(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """Return the first floating-point tensor among the arguments of a call, under any name.

    Raises TypeError if there is none.
    """
    for x in tensors([*args, *kwargs.values()]):
        if x.is_floating_point():
            return x
    raise TypeError("the arguments contain no floating-point tensor")
