"""A batch of a model's inputs, cut to a few rows and positions, and variants of this batch."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from normlab.any_model.batches.outputs import Outputs, outputs_of
from normlab.any_model.batches.overlap import PaddingSide
from normlab.errors import UserError

InputKey = str | int | None
"""The name or position of an input, or None for a mask that is not passed to the model."""
MaskKind = Literal["real", "padding", "lengths", "shares"]
"""The kinds of masks: ones for real tokens, ones for padding, lengths, or lengths as shares of the
longest one."""
Forward = Callable[[nn.Module, Any], Any]
_NO_CONTENT = ("position", "type_id", "mask", "length", "lens", "label", "cache")


class ModelFailed(UserError):
    """Raised if the model raises an exception; the message is its type and its first line."""


def message_of(error: Exception) -> str:
    """Return the first line of an exception's message."""
    return str(error).strip().partition("\n")[0]


@dataclass(frozen=True, eq=False)
class Example:
    """A batch and the axes of its tensors; `form` is the type of the user's batch.

    `row_axes` maps each input to its row axis, and `position_axes` maps it to its position axis, if
    it has one. `mask` is the input that marks real tokens: by ones (`real`), by zeros (`padding`),
    by `lengths`, or by `shares` of the longest length. `fill` maps each input, including other
    masks, to its value under padding. `special` are token ids that are placeholders or marks, not words.
    `numbers` has the numbers of the rows in the user's batch of `total` rows; added rows come last
    and have no number.
    """

    values: Mapping[InputKey, Any]
    form: type
    row_axes: Mapping[InputKey, int]
    position_axes: Mapping[InputKey, int] = field(default_factory=dict)
    mask: InputKey = None
    mask_kind: MaskKind | None = None  # None if there is no mask
    side: PaddingSide = "right"
    has_padding: bool = False  # whether any row of the user's batch is padded
    fill: Mapping[InputKey, int | float] = field(default_factory=dict)
    special: Set[int] = frozenset()
    numbers: tuple[int, ...] = ()
    total: int = 0

    @property
    def size(self) -> int:
        """The number of rows."""
        key, axis = next(iter(self.row_axes.items()))
        return self.values[key].shape[axis]

    @property
    def length(self) -> int:
        """The number of positions; 0 if the inputs have no position axis."""
        return next((self.values[key].shape[axis] for key, axis in self.position_axes.items()), 0)

    @property
    def pads(self) -> int:
        """The number of padding positions to add: half the length, but at least 8."""
        return max(8, self.length // 2)

    @property
    def decoder_axes(self) -> Mapping[InputKey, int]:
        """The position axis of each input that only the decoder of an encoder-decoder gets."""
        return {key: 1 for key in self.content if str(key).startswith(("decoder", "tgt"))}

    @property
    def steps(self) -> int:
        """The number of positions that a causal model, or a model's decoder, reads in order."""
        return next((self.values[key].shape[1] for key in self.decoder_axes), self.length)

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return next(x.device for x in self.values.values() if isinstance(x, Tensor))

    @cached_property
    def real(self) -> Bool[Tensor, "B T"]:
        """The mask of real tokens. Without a mask, all positions are real."""
        places = torch.arange(self.length, device=self.device).expand(self.size, -1)
        if not self.mask_kind:
            return places >= 0
        mask = self.values[self.mask]
        if self.mask_kind in ("lengths", "shares"):
            mask = (mask * self.length).round() if self.mask_kind == "shares" else mask
            return places < mask[:, None]
        return mask == 0 if self.mask_kind == "padding" else mask != 0

    @cached_property
    def lengths(self) -> list[int]:
        """The number of real positions in each row."""
        return [int(n) for n in self.real.sum(1)]

    @property
    def longest(self) -> int:
        """The index of the longest row, or of the first one if several are equally long."""
        return self.lengths.index(max(self.lengths))

    @property
    def content(self) -> list[InputKey]:
        """The inputs whose values may be replaced: tokens, features, images."""
        keys = [key for key in self.row_axes if key is not None and key != self.mask]
        return [key for key in keys if not any(name in str(key) for name in _NO_CONTENT)]

    def one(self, row: int) -> "Example":
        """Return a row alone, with its padding."""
        return replace(self.select_rows(row, row + 1), numbers=())

    def alone(self, row: int) -> "Example":
        """Return a row alone, without its padding."""
        one = self.one(row)
        real = one.real[0].nonzero().flatten().tolist()
        return one.select_positions(real[0], real[-1] + 1) if real else one

    def padded(self, n: int, *, other: bool = False, side: PaddingSide | None = None) -> "Example":
        """Return the longest row alone, padded by n positions, by default on the mask's side.

        The padding gets the values of the batch's own padding, or `pad_token_id` or 0 if the batch
        has none. With `other`, it gets values that real tokens could have. Position ids and token
        types repeat the nearest value.
        """
        row, on_the_left = self.alone(self.longest), (side or self.side) == "left"
        length = row.length

        def grow(key: InputKey, value: Tensor) -> Tensor:
            axis = row.position_axes[key]
            end = value.narrow(axis, 0 if on_the_left else length - 1, 1)
            block = end.repeat_interleave(n, axis)
            if key in row.content and other:
                times = -(-n // length)
                block = self._other(key, torch.cat([value] * times, axis).narrow(axis, 0, n))
            elif key == self.mask:
                pad = self.mask_kind == "padding"
                infinite = pad and value.is_floating_point()
                block = torch.full_like(block, -torch.inf if infinite else pad)
            elif key == "labels":
                block = torch.full_like(block, -100)
            elif key in self.fill:
                block = torch.full_like(block, self.fill[key])
            return torch.cat((block, value) if on_the_left else (value, block), axis)

        more = row.change(row.position_axes, grow)
        if self.mask_kind == "shares":
            more = more.change([self.mask], lambda _, x: x * length / (length + n))
        return more

    def with_other_rows(self, row: int) -> "Example":
        """Return the batch with other values in all rows except one."""

        def change(key: InputKey, x: Tensor) -> Tensor:
            other, axis = self._other(key, x), self.row_axes[key]
            same = x.narrow(axis, row, 1)
            before, _, after = other.tensor_split([row, row + 1], axis)
            return torch.cat([before, same, after], axis)

        return self.change(self.content, change)

    def reversed(self) -> "Example":
        """Return the batch with its rows in reverse order."""
        return self.change(self.row_axes, lambda key, x: x.flip(self.row_axes[key]))

    def with_later_tokens(self, t: int) -> "Example":
        """Return the longest row alone, with other values from position t of `steps` on."""
        row = self.alone(self.longest)
        axes = row.decoder_axes or row.position_axes

        def change(key: InputKey, x: Tensor) -> Tensor:
            earlier, later = x.tensor_split([t], axes[key])
            return torch.cat([earlier, self._other(key, later)], axes[key])

        return row.change([key for key in row.content if key in axes], change)

    def with_more_rows(self, size: int) -> "Example":
        """Return at least `size` rows; the values of added rows differ from those of the first."""
        example, row = self, self.one(0)
        while example.size < size:
            row = row.change(row.content, row._other)

            def joined(key: InputKey, x: Tensor, new: "Example" = row) -> Tensor:
                return torch.cat([x, new.values[key]], self.row_axes[key])

            example = example.change(example.row_axes, joined)
        return example

    def select_rows(self, start: int, stop: int) -> "Example":
        """Return the rows from start to stop."""
        axes, count = self.row_axes, stop - start
        return self.change(axes, lambda key, x: x.narrow(axes[key], start, count))

    def select_positions(self, start: int, stop: int) -> "Example":
        """Return the positions from start to stop, with lengths counted from start."""
        count = stop - start

        def cut_length(_: InputKey, x: Tensor) -> Tensor:
            if self.mask_kind == "lengths":
                return (x - start).clamp(0, count)
            return (x * self.length - start).clamp(0, count) / count

        axes = self.position_axes
        new = self.change(axes, lambda key, x: x.narrow(axes[key], start, count))
        has_lengths = self.mask_kind in ("lengths", "shares")
        return new.change([self.mask], cut_length) if has_lengths else new

    def change(
        self, keys: Iterable[InputKey], change: Callable[[InputKey, Tensor], Tensor]
    ) -> "Example":
        """Return an example with some inputs replaced by `change(key, input)`."""
        return replace(self, values={**self.values, **{k: change(k, self.values[k]) for k in keys}})

    def _other(self, key: InputKey, x: Tensor) -> Tensor:
        """Return values that all differ from x; floats also get a different mean and variance.

        Special tokens stay where they are, and none are added. Integers with more than two axes,
        such as boxes, are shifted by one position as a whole.
        """
        if x.is_floating_point():
            return 2 * x.roll(1, -1) + x.double().std(correction=0).clamp(min=0.1).to(x.dtype)
        if x.ndim > 2 and x.dtype != torch.bool:
            return x.roll(1, self.position_axes.get(key, self.row_axes[key]))
        special = torch.tensor([*self.special, self.fill.get(key, 0)], device=x.device).long()
        known = self.values[key].unique()
        words = known[~torch.isin(known, special)] if known.dtype != torch.bool else known
        words = words if len(words) > 1 else known
        if len(words) < 2:
            return (x == 0).to(x.dtype)
        other = words[(torch.searchsorted(words, x.contiguous()) + 1) % len(words)]
        if words is known:
            return other
        marks = torch.tensor([*self.special], device=x.device, dtype=x.dtype)
        return torch.where(torch.isin(x, marks), x, other)


def prepared_call(
    model: nn.Module, example: Example, forward: Forward | None, *, copies: bool = True
) -> Callable[[], Any]:
    """Return a function that calls a model with an example.

    By default, the model gets copies of the tensors.
    """
    values = dict(example.values)
    if copies:
        values = {k: v.clone() if isinstance(v, Tensor) else v for k, v in values.items()}
    ordered = [value for key, value in values.items() if isinstance(key, int)]
    keywords = {key: value for key, value in values.items() if isinstance(key, str)}
    if forward is None:
        return partial(model, *ordered, **keywords)
    batch: Any = keywords if issubclass(example.form, Mapping) else tuple(ordered)
    return partial(forward, model, batch[0] if issubclass(example.form, Tensor) else batch)


def call_model(
    model: nn.Module, example: Example, forward: Forward | None, *, copies: bool = True
) -> Any:
    """Return a model's output for an example. Exceptions of the model propagate."""
    return prepared_call(model, example, forward, copies=copies)()


def run_model(model: nn.Module, example: Example, forward: Forward | None = None) -> Outputs:
    """Run a model and return its outputs to compare, by name.

    Raises ModelFailed if the model raises an exception, UserError if it returns no float tensor.
    """
    call = prepared_call(model, example, forward)
    try:
        output = call()
    except Exception as error:
        raise ModelFailed(f"{type(error).__name__}: {message_of(error)}") from error
    return outputs_of(output)
