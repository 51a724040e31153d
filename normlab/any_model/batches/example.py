"""A batch of a model's inputs, cut to a few rows and positions, and variants of this batch."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from traceback import extract_tb
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
"""What a mask contains: ones for real tokens, ones for padding, the lengths of the rows, or each
row's length divided by the largest one.
"""
Forward = Callable[[nn.Module, Any], Any]
_NO_CONTENT = ("position", "type_id", "mask", "length", "lens", "label", "cache")


def has_content(name: str) -> bool:
    """Return whether the name of an input suggests tokens or features, not masks or positions."""
    return not any(part in name for part in _NO_CONTENT)


class ModelFailed(UserError):
    """Raised if the model raises an exception, whose type and first line are the message."""


def message_of(error: Exception) -> str:
    """Return the first line of an exception's message."""
    return str(error).strip().partition("\n")[0]


def error_of_user_code(what: str, error: Exception) -> UserError:
    """Return an error which says that `what` raised another one, and in which file and line."""
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    else:
        frame = extract_tb(error.__traceback__)[-1]
        file, line = frame.filename, frame.lineno
    where = f"{Path(file).name}:{line}"
    return UserError(f"{what} raised {type(error).__name__} in {where}: {message_of(error)}")


@dataclass(frozen=True, eq=False)
class Example:
    """A batch of a model's inputs, with the row axis and the position axis of each input.

    `form` is the type of the user's batch, and `names` has the names of its inputs. `row_axes` and
    `position_axes` have an entry for each input that has such an axis; `decoder_axes` has the
    position axis of each input to the decoder of an encoder-decoder. `mask` is the key of the input
    that marks real tokens. `fill` has the value under padding for each input, including other
    masks. `special` are the ids of tokens that are not words, such as separators and placeholders.
    `row_indices` are the rows' indices in the user's batch, which has `total` rows; rows that were
    added come last and have no index.
    """

    values: Mapping[InputKey, Any]
    form: type
    row_axes: Mapping[InputKey, int]
    position_axes: Mapping[InputKey, int] = field(default_factory=dict)
    decoder_axes: Mapping[InputKey, int] = field(default_factory=dict)
    names: Mapping[InputKey, str] = field(default_factory=dict)
    mask: InputKey = None
    mask_kind: MaskKind | None = None  # None if there is no mask
    side: PaddingSide = "right"
    has_padding: bool = False  # whether any row of the user's batch is padded
    fill: Mapping[InputKey, int | float] = field(default_factory=dict)
    special: Set[int] = frozenset()
    row_indices: tuple[int, ...] = ()
    total: int = 0

    @property
    def size(self) -> int:
        """The number of rows."""
        key, axis = next(iter(self.row_axes.items()))
        return self.values[key].shape[axis]

    @property
    def length(self) -> int:
        """The number of positions, or 0 if the inputs have no position axis."""
        return next((self.values[key].shape[axis] for key, axis in self.position_axes.items()), 0)

    @property
    def padding_to_add(self) -> int:
        """The number of positions by which to pad a row: half the length, but at least 8."""
        return max(8, self.length // 2)

    @property
    def steps(self) -> int:
        """The number of positions of the decoder's inputs, or of all inputs if it has none."""
        sizes = (self.values[key].shape[axis] for key, axis in self.decoder_axes.items())
        return next(sizes, self.length)

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return next(x.device for x in self.values.values() if isinstance(x, Tensor))

    @cached_property
    def real(self) -> Bool[Tensor, "B T"]:
        """True at real tokens. These are all tokens if the inputs have no mask."""
        positions = torch.arange(self.length, device=self.device).expand(self.size, -1)
        if not self.mask_kind:
            return positions >= 0
        mask = self.values[self.mask]
        if self.mask_kind in ("lengths", "shares"):
            mask = (mask * self.length).round() if self.mask_kind == "shares" else mask
            return positions < mask[:, None]
        return mask == 0 if self.mask_kind == "padding" else mask != 0

    @cached_property
    def lengths(self) -> list[int]:
        """The number of real positions in each row."""
        return [int(n) for n in self.real.sum(1)]

    @property
    def longest(self) -> int:
        """The index of the longest row, or of the first of several longest ones."""
        return self.lengths.index(max(self.lengths))

    @property
    def content(self) -> list[InputKey]:
        """The keys of the inputs whose values may be replaced, such as tokens or images.

        If all names suggest masks or positions, these are all inputs that have rows.
        """
        keys: list[InputKey] = [k for k in self.row_axes if k is not None and k != self.mask]
        return [key for key in keys if has_content(self.names.get(key, str(key)))] or keys

    def alone(self, row: int, *, with_padding: bool = False) -> "Example":
        """Return a row alone, by default without its padding."""
        alone = replace(self.select_rows(row, row + 1), row_indices=())
        real = alone.real[0].nonzero().flatten().tolist()
        if with_padding or not real:
            return alone
        return alone.select_positions(real[0], real[-1] + 1)

    def padded(self, n: int, *, other: bool = False, side: PaddingSide | None = None) -> "Example":
        """Return the longest row alone, padded by n positions on `side`.

        By default this is the side on which the batch is padded. The padding has the values under
        the batch's padding, `pad_token_id` or 0 if the batch has no padding, or, with `other`,
        values that real tokens could have. Position ids and token types repeat their nearest value.
        """
        row, on_the_left = self.alone(self.longest), (side or self.side) == "left"
        length = row.length

        def grow(key: InputKey, value: Tensor) -> Tensor:
            axis = row.position_axes[key]
            end = value.narrow(axis, 0 if on_the_left else length - 1, 1)
            block = end.repeat_interleave(n, axis)
            if key in row.content and other:
                times = -(-n // length)
                block = self._different(key, torch.cat([value] * times, axis).narrow(axis, 0, n))
            elif key == self.mask:
                pad = self.mask_kind == "padding"
                infinite = pad and value.is_floating_point()
                block = torch.full_like(block, -torch.inf if infinite else pad)
            elif self.names.get(key, key) == "labels":
                block = torch.full_like(block, -100)
            elif key in self.fill:
                block = torch.full_like(block, self.fill[key])
            return torch.cat((block, value) if on_the_left else (value, block), axis)

        more = row.change(row.position_axes, grow)
        if self.mask_kind == "shares":
            more = more.change([self.mask], lambda _, x: x * length / (length + n))
        return more

    def with_other_rows(self, row: int) -> "Example":
        """Return the batch with different values in all rows except one."""

        def change(key: InputKey, x: Tensor) -> Tensor:
            other, axis = self._different(key, x), self.row_axes[key]
            same = x.narrow(axis, row, 1)
            before, _, after = other.tensor_split([row, row + 1], axis)
            return torch.cat([before, same, after], axis)

        return self.change(self.content, change)

    def reversed(self) -> "Example":
        """Return the batch with its rows in reverse order."""
        return self.change(self.row_axes, lambda key, x: x.flip(self.row_axes[key]))

    def with_later_tokens(self, t: int) -> "Example":
        """Return the longest row alone, with different values from position t of `steps` on."""
        row = self.alone(self.longest)
        axes = row.decoder_axes or row.position_axes

        def change(key: InputKey, x: Tensor) -> Tensor:
            earlier, later = x.tensor_split([t], axes[key])
            return torch.cat([earlier, self._different(key, later)], axes[key])

        return row.change([key for key in row.content if key in axes], change)

    def with_rows_of(self, others: Sequence["Example"]) -> "Example":
        """Return the batch with the rows of other batches of the same shape after its own."""

        def joined(key: InputKey, x: Tensor) -> Tensor:
            return torch.cat([x, *(other.values[key] for other in others)], self.row_axes[key])

        return self.change(self.row_axes, joined)

    def with_more_rows(self, size: int) -> "Example":
        """Return the batch with rows added until it has `size` rows.

        An added row is the first row with different values.
        """
        example, row = self, self.alone(0, with_padding=True)
        while example.size < size:
            row = row.change(row.content, row._different)
            example = example.with_rows_of([row])
        return example

    def select_rows(self, start: int, stop: int) -> "Example":
        """Return the rows from `start` up to, but not including, `stop`."""
        axes, count = self.row_axes, stop - start
        return self.change(axes, lambda key, x: x.narrow(axes[key], start, count))

    def select_positions(self, start: int, stop: int) -> "Example":
        """Return the positions from `start` up to `stop`, and count lengths from `start`."""
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
        """Return the example with the inputs in `keys` replaced by `change(key, input)`."""
        return replace(self, values={**self.values, **{k: change(k, self.values[k]) for k in keys}})

    def _different(self, key: InputKey, x: Tensor) -> Tensor:
        """Return different values that an input could have in place of `x`.

        Floats also get a different mean and variance. Special tokens stay where they are, and none
        are added. Integers with more than two axes, such as boxes, are shifted by one position.
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
    """Return a function that calls a model with an example, by default with copies of its tensors.

    `forward` is the user's function that calls the model, or None.
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
    """Return a model's output for an example. The model's exceptions are not caught."""
    return prepared_call(model, example, forward, copies=copies)()


def run_model(model: nn.Module, example: Example, forward: Forward | None = None) -> Outputs:
    """Run a model, and return those of its outputs that are compared.

    Raises ModelFailed if the model raises an exception, UserError if it returns no float tensor.
    """
    call = prepared_call(model, example, forward)
    try:
        output = call()
    except Exception as error:
        raise ModelFailed(f"{type(error).__name__}: {message_of(error)}") from error
    return outputs_of(output)
