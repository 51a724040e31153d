"""One batch of a model's inputs, cut to a few rows and positions, and what is changed in it.

Row 0 is the row that is looked at: the longest of its batch, without padding. All variants keep it
first, so its values in a larger output are those at the start of every axis (or at the end of the
token axis if padding is on the left); see `Fit`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor, nn

Key = str | int | None
"""An input's name, or its position, or None for a mask that the model is not given."""
Forward = Callable[[nn.Module, Any], Any]
Side = Literal["left", "right"]
_NO_CONTENT = ("position", "type_id", "mask", "length", "label", "cache", "decoder")


class ModelFailed(ValueError):
    """The model raised an exception; the message has its first line."""


@dataclass(frozen=True)
class Example:
    """A batch with the axes of its tensors.

    `rows` and `tokens` have the batch axis and the token axis of each input that has one. `mask`
    is the input that marks real tokens, by ones (`real`), by zeros (`padding`) or by `lengths`.
    """

    values: Mapping[Key, Any]
    form: str
    rows: Mapping[Key, int]
    tokens: Mapping[Key, int] = field(default_factory=dict)
    mask: Key = None
    kind: str = ""  # of the mask; empty if there is none
    side: Side = "right"
    has_padding: bool = False  # anywhere in the user's batch
    fill: Mapping[Key, int | float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of rows."""
        key, axis = next(iter(self.rows.items()))
        return self.values[key].shape[axis]

    @property
    def length(self) -> int:
        """The number of positions; 0 if the inputs have no token axis."""
        for key, axis in self.tokens.items():
            return self.values[key].shape[axis]
        return 0

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return next(each.device for each in self.values.values() if _is_tensor(each))

    @property
    def real(self) -> Bool[Tensor, "B T"]:
        """Which positions are real tokens; all, if there is no mask."""
        if not self.kind:
            return torch.ones(self.size, self.length, dtype=torch.bool, device=self.device)
        given = self.values[self.mask]
        if self.kind == "lengths":
            return torch.arange(self.length, device=given.device) < given[:, None]
        return given == 0 if self.kind == "padding" else given != 0

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors that `content` names."""
        return [self.values[key] for key in self.content]

    @property
    def content(self) -> list[Key]:
        """The inputs whose values may be replaced by others: tokens, features, images."""
        names = {key: str(key) for key in self.rows if key is not None and key != self.mask}
        return [key for key, name in names.items() if not any(n in name for n in _NO_CONTENT)]

    def alone(self) -> "Example":
        """Return row 0 without the other rows."""
        return self.cut(self.rows, 0, 1)

    def padded(self, n: int, *, other: bool = False) -> "Example":
        """Return row 0 alone, followed by n positions of padding (on the mask's side).

        The padding has the values found under the batch's own padding, else `pad_token_id` or 0;
        with `other`, values as of real tokens.
        """
        row = self.alone()

        def grow(key: Key, value: Tensor) -> Tensor:
            axis = self.tokens[key]
            edge = value.narrow(axis, 0 if self.side == "left" else value.shape[axis] - 1, 1)
            block = edge.repeat_interleave(n, axis)
            if key == self.mask:
                additive = value.is_floating_point() and self.kind == "padding"
                marks = float("-inf") if additive else self.kind == "padding"
                block = torch.full_like(block, marks)
            elif key in self.content:
                times = -(-n // value.shape[axis])
                block = torch.cat([value] * times, axis).narrow(axis, 0, n)
                block = self._other(key, block) if other else block.new_full((), self.fill[key])
                block = block.expand(*edge.shape[:axis], n, *edge.shape[axis + 1 :])
            elif key == "labels":
                block = torch.full_like(block, -100)
            parts = (block, value) if self.side == "left" else (value, block)
            return torch.cat(parts, axis)

        return row.change(self.tokens, grow)

    def with_other_rows(self) -> "Example":
        """Return the batch with other values in all rows but row 0."""
        size = self.size

        def change(key: Key, value: Tensor) -> Tensor:
            axis = self.rows[key]
            others = self._other(key, value.narrow(axis, 1, size - 1))
            return torch.cat([value.narrow(axis, 0, 1), others], axis)

        return self.change(self.content, change)

    def with_later_tokens(self, t: int) -> "Example":
        """Return row 0 alone, with other values from position t on."""
        row, n = self.alone(), self.length

        def change(key: Key, value: Tensor) -> Tensor:
            axis = self.tokens[key]
            later = self._other(key, value.narrow(axis, t, n - t))
            return torch.cat([value.narrow(axis, 0, t), later], axis)

        return row.change([key for key in self.content if key in self.tokens], change)

    def until(self, t: int) -> "Example":
        """Return row 0 alone, cut to its first t positions."""
        return self.alone().cut(self.tokens, 0, t)

    def cut(self, axes: Mapping[Key, int], start: int, stop: int) -> "Example":
        new = self.change(axes, lambda key, x: x.narrow(axes[key], start, stop - start))
        if self.kind == "lengths" and axes is self.tokens:
            new = new.change([self.mask], lambda _, x: x.clamp(max=stop) - start)
        return new

    def change(self, keys: Iterable[Key], change: Callable[[Key, Tensor], Tensor]) -> "Example":
        return replace(self, values={**self.values, **{k: change(k, self.values[k]) for k in keys}})

    def _other(self, key: Key, x: Tensor) -> Tensor:
        """Return values that all differ from x, with another mean and variance if they are real."""
        if x.is_floating_point():
            spread = x.double().std(correction=0).clamp(min=0.1).to(x.dtype)
            return 2 * x.roll(1, -1) + spread
        known = self.values[key].unique()
        known = known[known != self.fill[key]] if len(known) > 2 else known
        if x.dtype == torch.bool or len(known) < 2:
            return ~x if x.dtype == torch.bool else (x - 1).abs()
        return known[(torch.searchsorted(known, x.contiguous()) + 1) % len(known)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def call(
    model: nn.Module, example: Example, forward: Forward | None, *, copies: bool = True
) -> Any:
    """Return a model's output for an example, by default for copies of its tensors."""
    values = example.values.items()
    given = {key: x.clone() if copies and _is_tensor(x) else x for key, x in values}
    given.pop(None, None)
    ordered = [given[key] for key in sorted(key for key in given if isinstance(key, int))]
    named = {key: value for key, value in given.items() if isinstance(key, str)}
    if forward is None:
        return model(*ordered, **named)
    batch: Any = named if example.form == "dict" else tuple(ordered)
    return forward(model, batch[0] if example.form == "tensor" else batch)


def run(model: nn.Module, example: Example, forward: Forward | None = None) -> Tensor:
    """Return the output looked at: `logits`, `last_hidden_state` or the first tensor of floats.

    Raises ModelFailed if the model raises an exception, ValueError if it returns no such tensor.
    """
    try:
        output = call(model, example, forward)
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise ModelFailed(f"{type(error).__name__}: {said}") from error
    return looked_at(output)


def looked_at(output: Any) -> Tensor:
    """Return the tensor of an output that questions are about; ValueError if it has none."""
    if isinstance(output, nn.utils.rnn.PackedSequence):
        return nn.utils.rnn.pad_packed_sequence(output, batch_first=True)[0]
    for name in ("logits", "last_hidden_state"):
        value = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(value, Tensor):
            return value
    for value in tensors(output):
        if value.is_floating_point() and value.ndim:
            return value
    raise ValueError(
        f"the model returns a {type(output).__name__} without a tensor of floats: "
        "return one with forward=lambda model, batch: ..."
    )


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested dicts, tuples, lists and dataclasses, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors(each)


@dataclass(frozen=True)
class Fit:
    """Which part of a variant's tensor has a counterpart in the base's tensor.

    Along axes of different sizes it is the first entries, or the last ones if padding is on the
    `left`. Along axes of `size` in both it is the first (or last) `kept` entries in both.
    """

    side: Side = "right"
    size: int = 0
    kept: int = 0

    def __call__(self, y: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """Return views of both tensors with the same shape; ValueError if there are none."""
        if y.ndim != base.ndim or any(a < b for a, b in zip(y.shape, base.shape, strict=True)):
            raise ValueError(f"the output has the shape {[*y.shape]}, for one row {[*base.shape]}")
        for axis in range(y.ndim):
            few = base.shape[axis]
            kept = self.kept if y.shape[axis] == few == self.size else few
            views = (x.narrow(axis, self._start(x.shape[axis], kept), kept) for x in (y, base))
            y, base = views
        return y, base

    def _start(self, size: int, kept: int) -> int:
        return size - kept if self.side == "left" else 0
