"""Finds the row axis and the position axis of a model's inputs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from normlab.any_model.batches.example import InputKey, has_content
from normlab.errors import UserError


class Axes(NamedTuple):
    """The row axis and the position axis of the main input, each None unless the user sets it."""

    rows: int | None = None
    positions: int | None = None

    def of(self, x: Tensor, name: str) -> "Axes":
        """Return the axes for an input, with negative numbers replaced by nonnegative ones.

        Raises UserError if one is out of range, or if both are the same axis.
        """
        for which, axis in self._asdict().items():
            if axis is not None and not -x.ndim <= axis < x.ndim:
                raise UserError(f"{which}={axis} is out of range: {name} has shape {[*x.shape]}")
        rows, positions = (None if axis is None else axis % x.ndim for axis in self)
        if rows is not None and rows == positions:
            raise UserError(f"rows and positions are both axis {rows}; set different axes")
        return Axes(rows, positions)


class MainAxes(NamedTuple):
    """The row axis and the position axis of the main input. It may have no position axis."""

    rows: int
    positions: int | None


def main_axes(
    model: nn.Module, x: Tensor, name: str, marks: Tensor | None, known: Axes
) -> MainAxes:
    """Return the row axis and the position axis of the main input.

    `marks` is a mask of tokens [rows, positions], or lengths [rows]. Axes in `known`, set by
    the user, are taken as they are. The others follow from the mask's shape, the model's layers,
    the input's name and its shape, in that order. Raises UserError if the input and the mask have
    no axes in common.
    """
    rows, positions = known.of(x, name)
    if positions is None:
        positions = _position_axis(model, x, name, marks, rows)
    return MainAxes(int(positions == 0) if rows is None else rows, positions)


def _position_axis(
    model: nn.Module, x: Tensor, name: str, marks: Tensor | None, rows: int | None
) -> int | None:
    if rows == 1:
        return 0
    if marks is not None and marks.ndim == 2:
        return _axis_of_mask(x, name, marks)
    if marks is not None and x.ndim > 1:
        if rows is None and len(marks) != x.shape[0] and len(marks) == x.shape[1]:
            return 0
        axis = _axis_of_lengths(x, marks)
        if axis is not None:
            return axis
    first = batch_first(model) if rows is None else None
    if first is not None and x.ndim == 2 and x.is_floating_point():
        raise UserError(
            f"{name} {[*x.shape]} is a single row for a {type(model).__name__}; pass a batch of "
            f"rows, {'[rows, positions, features]' if first else '[positions, rows, features]'}"
        )
    if first is False:
        return 0
    bins = getattr(getattr(model, "config", None), "num_mel_bins", None)
    if name == "input_features" and x.ndim == 3 and x.shape[1] == bins:
        return 2
    if x.ndim == 2:  # floats are features of a row, unless a mask or the name shows a sequence
        is_sequence = marks is not None or not x.is_floating_point() or name == "input_values"
    else:
        is_sequence = x.ndim == 3 and x.is_floating_point()
    return 1 if is_sequence else None


def _axis_of_mask(x: Tensor, name: str, mask: Tensor) -> int:
    """Return the axis that is as long as the rows of a mask. Raise UserError if there is none."""
    size, length = mask.shape
    axes = [n for n in range(1, x.ndim) if x.shape[n] == length]
    if x.shape[:2] == (length, size) and size != length:
        return 0
    if not axes:
        raise UserError(f"{name} {[*x.shape]} has no token axis of its mask's length {length}")
    return axes[0]


def _axis_of_lengths(x: Tensor, lengths: Tensor) -> int | None:
    """Return the first axis that is as long as the longest row, else the first longer one, else 1.

    Return None if axis 1 is as long as the longest row, or if the lengths are shares of it.
    """
    longest = float(lengths.max())  # in positions, or 1 if lengths are shares of the longest
    sizes = {n: x.shape[n] for n in range(1, x.ndim)}
    if longest <= 1 or sizes[1] == longest:
        return None
    fits = [n for n, size in sizes.items() if size == longest]
    return next(iter(fits or (n for n, size in sizes.items() if size > longest)), 1)


class MainShape(NamedTuple):
    """The number of axes of the main input, its row axis, and its numbers of rows and positions."""

    ndim: int
    row_axis: int
    size: int
    length: int


class InputAxes(NamedTuple):
    """The row axis of each input that has one, and the position axis of each that has one.

    `decoder` has the position axis of each input to a decoder, which has positions of its own.
    """

    rows: dict[InputKey, int]
    positions: dict[InputKey, int]
    decoder: dict[InputKey, int]


def axes_of_inputs(
    values: Mapping[InputKey, Any], names: Mapping[InputKey, str], config: Any, main: MainShape
) -> InputAxes:
    """Return the axes of all inputs that have as many rows or positions as the main input."""
    input_axes = InputAxes({}, {}, {})
    encodes = getattr(config, "is_encoder_decoder", False) or "src" in names.values()
    of_decoder = ("decoder", "labels", "tgt") if encodes else ("decoder",)
    for k, x in values.items():
        shape = [*x.shape] if isinstance(x, Tensor) else []
        name = names.get(k, str(k))
        rows = _row_axis(shape, name, main)
        if rows is not None:
            input_axes.rows[k] = rows
            if name.startswith(("decoder", "tgt")) and has_content(name) and len(shape) > 1:
                input_axes.decoder[k] = 1 - rows
        if name.startswith(of_decoder):
            continue
        axes = [n for n in range(1, len(shape)) if shape[n] == main.length]
        if rows == 1 and shape[0] == main.length:
            input_axes.positions[k] = 0
        elif axes and rows != 1 and shape[0] in (1, main.size):
            input_axes.positions[k] = axes[0]
    return input_axes


def _row_axis(shape: list[int], name: str, main: MainShape) -> int | None:
    """Return the row axis of an input, or None if no axis has as many entries as there are rows."""
    if main.length and main.size != main.length and shape[:2] == [main.length, main.size]:
        return 1
    # masks of torch's layers have their rows first in both layouts
    like_main = len(shape) == main.ndim and "mask" not in name
    if main.row_axis == 1 and like_main and shape[1] == main.size:
        return 1
    return 0 if shape[:1] == [main.size] else None


def batch_first(model: nn.Module) -> bool | None:
    """Return whether all recurrent and attention layers of a model take [rows, positions, ...].

    Return None if there are no such layers, or if the model's class is not one of torch's, because
    its code may transpose the input.
    """
    if not type(model).__module__.startswith("torch.nn"):
        return None
    kinds = (nn.RNNBase, nn.MultiheadAttention)
    settings = [module.batch_first for module in model.modules() if isinstance(module, kinds)]
    return all(settings) if settings else None
