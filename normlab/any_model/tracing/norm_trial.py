"""Runs one norm of a model on changed inputs, to find which outputs change."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from normlab.any_model.batches.example import message_of
from normlab.any_model.batches.outputs import tensors
from normlab.any_model.tracing.calls import Call

LARGE = 1e3
"""A change, in multiples of the input's RMS, that affects all outputs with the same statistics."""
_CHANGES = (LARGE, -777.0)
"""Changes to try, in multiples of the input's RMS.

If one of them happens to leave an output's normalized value as it is, the other one changes it.
"""
_CHANGED = 1e-4  # a relative change far above rounding in float32, in which many norms compute
_SAME = 0.03  # the largest effect of doubling the input, relative to the effect of noise


class TrialFailed(Exception):
    """Raised if a module cannot be copied, converted to a dtype, or run on a changed input.

    The message is the module's exception. A bug in this package raises other exceptions.
    """


@contextmanager
def _of_module() -> Iterator[None]:
    """Turn any exception into TrialFailed. Only the model's own code may be run inside."""
    try:
        yield
    except Exception as error:
        raise TrialFailed(f"{type(error).__name__}: {message_of(error)}") from error


class RowCalls(NamedTuple):
    """A module's first calls with the longest row alone, and with this row padded."""

    alone: Call
    padded: Call


class NormCalls(NamedTuple):
    """A module's first calls: with all rows, and with one row.

    `one_row` is None if there are no calls with one row to compare with. The input and output of a
    call have the same shape, and the inputs of all calls have the same number of axes.
    """

    all_rows: Call
    one_row: RowCalls | None


class Trial:
    """A copy of a called module, with gains of 1 and in a given dtype, to be run on other inputs.

    The call must have an input with the shape of its output (`input_place`). Raises TrialFailed if
    the module cannot be copied or converted.
    """

    def __init__(self, call: Call, dtype: torch.dtype) -> None:
        def cast(x: Tensor) -> Tensor:
            return x.to(dtype) if x.is_floating_point() else x

        memo = _computed_tensors(call.module)
        with _of_module():
            self.module = copy.deepcopy(call.module, memo).to(dtype)
            arguments = [*call.args], dict(call.kwargs)
            self._args, self._kwargs = tree_map_only(Tensor, cast, arguments)
        self.gains = [parameter.data.clone() for parameter in self.module.parameters()]
        for parameter in self.module.parameters():
            parameter.data.fill_(1)
        self._place: Any = input_place(call)
        self._holder: Any = self._args if isinstance(self._place, int) else self._kwargs
        x: Tensor = self._holder[self._place]
        self.size = float(x.square().mean().sqrt()) or 1.0
        self.x = x + 0.1 * self.size * torch.where(x < 0, -1, 1)  # no value is near 0
        self._before: dict[bool, Tensor] = {}
        self._buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]

    @torch.no_grad()
    def __call__(self, x: Tensor, *, training: bool = False) -> Tensor:
        """Return the output for the input `x`, without updating the module's running statistics.

        Raises TrialFailed if the module raises an exception, or if the output has another shape.
        """
        self._holder[self._place] = x
        (torch.cuda if x.is_cuda else torch.default_generator).manual_seed(0)
        try:
            with _of_module():
                y = self.module.train(training)(*self._args, **self._kwargs)
        finally:
            for buffer, former in self._buffers if training else ():
                buffer.copy_(former)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            raise TrialFailed(f"its output for a changed input is not a tensor {[*x.shape]}")
        return y

    def before(self, training: bool = False) -> Tensor:
        """Return the output for the unchanged input."""
        if training not in self._before:
            self._before[training] = self(self.x, training=training)
        return self._before[training]

    def changed_outputs(self, index: Sequence[int], training: bool) -> Tensor:
        """Return a mask of the outputs that change if the input's value at `index` changes."""
        before = self.before(training)
        changed = torch.zeros_like(before, dtype=torch.bool)
        for change in _CHANGES:
            other = self.x.clone()
            other[tuple(index)] += change * (self.size + 1)  # also far above eps
            y = self(other, training=training)
            changed |= ~((y - before).abs() <= _CHANGED * before.abs())
        return changed

    def ignores_scale(self) -> bool:
        """Return whether doubling the input changes the output far less than noise of its size."""
        noise = torch.randn(self.x.shape, generator=torch.Generator().manual_seed(0)).to(self.x)
        for scale, share in ((1.0, _SAME), (LARGE, _SAME**2)):
            x = scale / self.size * self.x
            before = self(x)
            doubled, noisy = ((self(y) - before).norm() for y in (2 * x, x + scale * noise))
            if not (doubled <= share * noisy and noisy > _CHANGED * before.norm()):
                return False
        return True


def copied(module: nn.Module) -> nn.Module:
    """Return a deep copy of a module, even if it stores computed tensors.

    `weight_norm` stores a computed weight, and torch cannot copy tensors with a gradient history.
    """
    return copy.deepcopy(module, _computed_tensors(module))


def _computed_tensors(module: nn.Module) -> dict[int, Tensor]:
    """Return copies of a module's tensors that have a gradient history, keyed by tensor id."""
    attributes = (x for part in module.modules() for x in tensors([*vars(part).values()]))
    return {id(x): x.detach().clone() for x in attributes if not x.is_leaf}


def input_place(call: Call) -> int | str | None:
    """Return the position or the name of the argument that is a norm's input.

    The input is the first float tensor. Returns None if it does not have the output's shape.
    """
    for place, value in (*enumerate(call.args), *call.kwargs.items()):
        if isinstance(value, Tensor) and value.is_floating_point():
            y = call.output
            plain = isinstance(y, Tensor) and not (value.is_nested or y.is_nested)
            fits = plain and value.ndim and value.numel() and value.shape == y.shape
            return place if fits else None
    return None
