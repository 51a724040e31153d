"""One batch of a model's inputs, cut to a few rows and positions, and variants of it.

Row 0 is the row that is examined: the longest of its batch, without padding. It comes first in all
variants, so its values come first on every axis of an output (last after left padding: `Overlap`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from normlab.errors import UserError

Key = str | int | None
"""An input's name or position, or None for a mask that is not passed to the model."""
Forward = Callable[[nn.Module, Any], Any]
Side = Literal["left", "right"]
_NO_CONTENT = ("position", "type_id", "mask", "length", "label", "cache")


class ModelFailed(UserError):
    """The model raised an exception; the message has its type and its first line."""


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message."""
    return str(error).strip().partition("\n")[0]


@dataclass(frozen=True)
class Overlap:
    """Which part of a variant's tensor has a counterpart in the base's tensor.

    Along an axis whose sizes differ, the first entries correspond, or the last ones if padding is
    on the `left`. Along an axis that has `size` in both, only the first (or last) `kept` do.
    """

    side: Side = "right"
    size: int = 0
    kept: int = 0

    def __call__(self, y: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """Return views of both tensors with the same shape; UserError if there are none."""
        if y.ndim != base.ndim or any(a < b for a, b in zip(y.shape, base.shape, strict=True)):
            raise UserError(f"the output is {[*y.shape]}, but {[*base.shape]} for one row alone")
        for axis, few in enumerate(base.shape):
            kept = self.kept if y.shape[axis] == few == self.size else few
            y, base = (
                x.narrow(axis, x.shape[axis] - kept if self.side == "left" else 0, kept)
                for x in (y, base)
            )
        return y, base


@dataclass(frozen=True, eq=False)
class Example:
    """A batch with the axes of its tensors; `form` is the type of the user's batch.

    `rows` and `tokens` map each input to its batch axis and its token axis, if it has one. `mask`
    is the input that marks real tokens: by ones (`real`), by zeros (`padding`) or by `lengths`.
    `fill` maps each input to its value under padding. `overlap` aligns tensors with row 0 alone.
    """

    values: Mapping[Key, Any]
    form: type
    rows: Mapping[Key, int]
    tokens: Mapping[Key, int] = field(default_factory=dict)
    mask: Key = None
    kind: str = ""  # of the mask; empty if there is none
    side: Side = "right"
    has_padding: bool = False  # anywhere in the user's batch
    fill: Mapping[Key, int | float] = field(default_factory=dict)
    overlap: Overlap = Overlap()

    @property
    def size(self) -> int:
        """The number of rows."""
        key, axis = next(iter(self.rows.items()))
        return self.values[key].shape[axis]

    @property
    def length(self) -> int:
        """The number of positions; 0 if the inputs have no token axis."""
        return next((self.values[key].shape[axis] for key, axis in self.tokens.items()), 0)

    @property
    def pads(self) -> int:
        """How many positions of padding to add: half the length, at least 8."""
        return max(8, self.length // 2)

    @property
    def decoder(self) -> Mapping[Key, int]:
        """The token axis of the inputs that only the decoder of an encoder-decoder gets."""
        return {key: 1 for key in self.content if str(key).startswith("decoder")}

    @property
    def steps(self) -> int:
        """The number of positions that a causal model reads in order: the decoder's, if any."""
        return next((self.values[key].shape[1] for key in self.decoder), self.length)

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return next(x.device for x in self.values.values() if isinstance(x, Tensor))

    @property
    def real(self) -> Bool[Tensor, "B T"]:
        """Which positions are real tokens; all, if there is no mask."""
        places = torch.arange(self.length, device=self.device).expand(self.size, -1)
        if not self.kind:
            return places >= 0
        given = self.values[self.mask]
        if self.kind == "lengths":
            return places < given[:, None]
        return given == 0 if self.kind == "padding" else given != 0

    @property
    def content(self) -> list[Key]:
        """The inputs whose values may be replaced by others: tokens, features, images."""
        keys = [key for key in self.rows if key is not None and key != self.mask]
        return [key for key in keys if not any(name in str(key) for name in _NO_CONTENT)]

    def alone(self, row: int = 0) -> "Example":
        """Return a row without the other rows, and without its padding."""
        one = self.cut(self.rows, row, row + 1)
        real = one.real[0].nonzero().flatten().tolist()
        return one.cut(one.tokens, real[0], real[-1] + 1) if real else one

    def padded(self, n: int, *, other: bool = False) -> "Example":
        """Return row 0 alone with n positions of padding on the mask's side.

        The padding has the values found under the batch's own padding, else `pad_token_id` or 0;
        with `other`, values like real tokens'. Positions and token types repeat the nearest one.
        """
        row = self.alone()

        def grow(key: Key, value: Tensor) -> Tensor:
            axis = self.tokens[key]
            end = value.narrow(axis, 0 if self.side == "left" else self.length - 1, 1)
            block = end.repeat_interleave(n, axis)
            if key in self.content and other:
                times = -(-n // self.length)
                block = self._other(key, torch.cat([value] * times, axis).narrow(axis, 0, n))
            elif key in self.content:
                block = torch.full_like(block, self.fill[key])
            elif key == self.mask:
                pad = self.kind == "padding"
                block = torch.full_like(
                    block, -torch.inf if pad and value.is_floating_point() else pad
                )
            elif key == "labels":
                block = torch.full_like(block, -100)
            return torch.cat((block, value) if self.side == "left" else (value, block), axis)

        return replace(row.change(self.tokens, grow), overlap=Overlap(self.side))

    def with_other_rows(self) -> "Example":
        """Return the batch with other values in all rows but row 0."""
        return self._replaced(self.rows, 1)

    def with_later_tokens(self, t: int) -> "Example":
        """Return row 0 alone, with other values from position t on; t counts `steps`."""
        later = self.alone()._replaced(self.decoder or self.tokens, t)
        return replace(later, overlap=Overlap("right", self.steps, t))

    def _replaced(self, axes: Mapping[Key, int], start: int) -> "Example":
        def change(key: Key, x: Tensor) -> Tensor:
            kept, rest = x.tensor_split([start], axes[key])
            return torch.cat([kept, self._other(key, rest)], axes[key])

        return self.change([key for key in self.content if key in axes], change)

    def cut(self, axes: Mapping[Key, int], start: int, stop: int) -> "Example":
        """Return only the rows, or the positions, from start to stop."""
        new = self.change(axes, lambda key, x: x.narrow(axes[key], start, stop - start))
        if self.kind == "lengths" and axes is self.tokens:
            new = new.change([self.mask], lambda _, x: x.clamp(max=stop) - start)
        return new

    def change(self, keys: Iterable[Key], change: Callable[[Key, Tensor], Tensor]) -> "Example":
        """Return an example with some inputs replaced by `change(key, input)`."""
        return replace(self, values={**self.values, **{k: change(k, self.values[k]) for k in keys}})

    def _other(self, key: Key, x: Tensor) -> Tensor:
        """Return values that all differ from x; floats also get a different mean and variance."""
        if x.is_floating_point():
            return 2 * x.roll(1, -1) + x.double().std(correction=0).clamp(min=0.1).to(x.dtype)
        known = self.values[key].unique()
        known = known[known != self.fill.get(key, 0)] if len(known) > 2 else known
        if len(known) < 2:
            return (x == 0).to(x.dtype)
        return known[(torch.searchsorted(known, x.contiguous()) + 1) % len(known)]


def call(
    model: nn.Module, example: Example, forward: Forward | None, *, copies: bool = True
) -> Any:
    """Return a model's output for an example, by default for copies of its tensors."""
    values = dict(example.values)
    if copies:
        values = {k: v.clone() if isinstance(v, Tensor) else v for k, v in values.items()}
    ordered = [value for key, value in values.items() if isinstance(key, int)]
    named = {key: value for key, value in values.items() if isinstance(key, str)}
    if forward is None:
        return model(*ordered, **named)
    batch: Any = named if issubclass(example.form, Mapping) else tuple(ordered)
    return forward(model, batch[0] if issubclass(example.form, Tensor) else batch)


def run(model: nn.Module, example: Example, forward: Forward | None = None) -> Tensor:
    """Return the output to compare: `logits`, `last_hidden_state` or the first float tensor.

    Raises ModelFailed if the model raises an exception, UserError if it returns no such tensor.
    """
    try:
        output = call(model, example, forward)
    except Exception as error:
        raise ModelFailed(f"{type(error).__name__}: {first_line(error)}") from error
    return looked_at(output)


def looked_at(output: Any) -> Tensor:
    """Return the tensor to compare from a model's output; UserError if there is none."""
    if isinstance(output, nn.utils.rnn.PackedSequence):
        return nn.utils.rnn.pad_packed_sequence(output, batch_first=True)[0]
    for name in ("logits", "last_hidden_state"):
        value = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(value, Tensor):
            return value
    for value in tensors(output):
        if value.is_floating_point() and value.ndim:
            return value
    raise UserError(
        f"the model returns a {type(output).__name__} without a float tensor that has rows: "
        "return one with forward=lambda model, batch: ..."
    )


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested dicts, tuples and lists, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from tensors(each)
