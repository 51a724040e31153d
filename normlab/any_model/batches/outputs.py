"""Selects the outputs of a model to compare, and aligns the outputs of two passes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normlab.errors import UserError
from normlab.findings.relative_change import relative_change

PaddingSide = Literal["left", "right"]
Outputs = dict[str, Tensor]
"""Floating-point outputs by name, the main one first: `logits`, `hidden_states[1]`, `[0]`."""
_MAIN = ("logits", "last_hidden_state")
_STATES = ("past_key_values", "cache", "mems")
"""Outputs that are inputs of a later call and not results."""


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
    """Yield the tensors in nested outputs with their names, as in Python: `hidden_states[1]`."""
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


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested dicts, tuples and lists, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors(item)


@dataclass(frozen=True)
class Overlap:
    """Finds the part of a variant's tensor that corresponds to the base's tensor.

    The base is one row, and the variant has `padding` more positions. With `rows`, the variant is a
    batch in which the base is row `row`: along the axis with `rows` times as many entries, only the
    entries of that row correspond to the base. Along other axes whose sizes differ, the first
    entries correspond, or the last ones if padding is on the `left`. If an axis has more entries
    than the `length` positions of the base, the additional ones may also be at the other end, such
    as a token that the model puts first. Along an axis that has `size` entries in both tensors,
    only the first (or last) `common` entries correspond.
    """

    side: PaddingSide = "right"
    size: int = 0
    common: int = 0
    length: int = 0
    padding: int = 0
    row: int = 0
    rows: int = 0

    def __call__(self, y: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """Return views of both tensors with the same shape. Raise UserError if there are none."""
        return next(self.ways(y, base))

    def ways(self, y: Tensor, base: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield both tensors, cut to the same shape, for each way in which they may correspond."""
        y = self._part_of_row(y, base)
        if y.ndim != base.ndim or any(a < b for a, b in zip(y.shape, base.shape, strict=True)):
            raise UserError(f"the output is {[*y.shape]}, but {[*base.shape]} for one row alone")
        plain, split = y, y
        for axis, few in enumerate(base.shape):
            if y.shape[axis] == few == self.size:
                start = few - self.common if self.side == "left" else 0
                plain, base, split = (
                    x.narrow(axis, start, self.common) for x in (plain, base, split)
                )
            elif (more := y.shape[axis] - few) > 0:
                plain = plain.narrow(axis, more if self.side == "left" else 0, few)
                split = self._split(split, axis, few)
        yield plain, base
        if split.shape != plain.shape or split.data_ptr() != plain.data_ptr():
            yield split, base

    def nearest(self, y: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """Return both tensors, aligned in the way that makes them most similar."""
        ways = [*self.ways(y, base)]
        return ways[0] if len(ways) == 1 else min(ways, key=lambda pair: _distance(*pair))

    def fits(self, y: Tensor, base: Tensor) -> bool:
        """Return whether each entry of the base can have a counterpart in the variant.

        No axis may grow by more than the padding.
        """
        try:
            y = self._part_of_row(y, base)
        except (UserError, StopIteration):
            return False
        if y.ndim != base.ndim or not base.numel():
            return False
        if self.size and base.ndim > 1 and self.size not in base.shape[: max(2, base.ndim - 1)]:
            return False  # such as the state after the last position
        growth = [a - b for a, b in zip(y.shape, base.shape, strict=True)]
        return all(0 <= more <= self.padding for more in growth)

    def _split(self, y: Tensor, axis: int, few: int) -> Tensor:
        """Return entries from both ends: positions from one end, added entries from the other."""
        added, end = few - self.length, y.shape[axis]
        if not 0 < added < few:
            return y.narrow(axis, end - few if self.side == "left" else 0, few)
        first = added if self.side == "left" else self.length
        return torch.cat(
            [y.narrow(axis, 0, first), y.narrow(axis, end - few + first, few - first)], axis
        )

    def _part_of_row(self, y: Tensor, base: Tensor) -> Tensor:
        """Return the part of a batch's tensor that belongs to the row."""
        if not self.rows or y.ndim != base.ndim or y.shape == base.shape:
            return y
        sizes = [*zip(y.shape, base.shape, strict=True)]
        axes = [axis for axis, (many, few) in enumerate(sizes) if many == few * self.rows]
        # padding may lengthen another axis by the same factor
        least = min((sizes[axis][1] for axis in axes), default=0)
        axes = [axis for axis in axes if sizes[axis][1] == least]
        if axes:  # several axes if rows are compared with each other, such as images with texts
            for axis in axes:
                y = y.narrow(axis, self.row * sizes[axis][1], sizes[axis][1])
            return y
        axis = next(n for n, (many, few) in enumerate(sizes) if many != few)
        many, few = sizes[axis]  # rows of different lengths, one after the other
        if many < few or self.row not in (0, self.rows - 1):
            raise UserError(f"the output {[*y.shape]} has no axis of {self.rows} rows")
        return y.narrow(axis, 0 if self.row == 0 else many - few, few)


def _distance(y: Tensor, base: Tensor) -> float:
    """Return how much floats differ, or how many integers differ."""
    return relative_change(y, base) if y.is_floating_point() else float((y != base).sum())


def comparable(names: Iterable[str], ys: Outputs, bases: Outputs, overlap: Overlap) -> list[str]:
    """Return the names of the outputs that both passes have and that can be compared.

    The first output is the main one and is always compared. Another one is left out if it grows by
    more than the padding, as a table of relative positions does.
    """
    both = [name for name in names if name in ys and name in bases]
    return both[:1] + [name for name in both[1:] if overlap.fits(ys[name], bases[name])]
