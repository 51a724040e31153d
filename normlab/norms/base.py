"""The base class of norms, which applies gain and shift, and the identity, `NoNorm`."""

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar, Literal, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from normlab.errors import UserError
from normlab.norms.moments import Axis
from normlab.norms.ramp import Clock, Ramp
from normlab.norms.tokens import ALL, Tokens

_Function = TypeVar("_Function", bound=Callable[..., Any])
Affine = bool | Literal["scale"]
"""Whether a norm learns a gain and a shift. With `scale`, it learns only a gain."""


def uncompiled(function: _Function) -> _Function:
    """Exclude a function from compilation, without importing torch._dynamo (about a second)."""
    disabled = _disable_dynamo(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        compiles = "torch._dynamo" in sys.modules
        return (disabled if compiles else function)(*args, **kwargs)

    return cast("_Function", call)


class Norm(nn.Module, ABC):
    """Normalizes `[B, P, D]` with statistics over the axes `pools`, then applies gain and shift.

    B is the number of sequences in the batch, P the number of positions and D the number of
    features. `weight`, the gain, and `bias`, the shift, have one value per feature. They are
    parameters if they are learned, and otherwise the constants 1 and 0.
    """

    pools: ClassVar[frozenset[Axis]]
    exact_gradient: ClassVar[bool] = True
    """Whether the backward pass is the exact gradient of the forward pass in training."""
    foldable: ClassVar[bool] = False
    """Whether the norm can be a fixed scale and shift per feature in eval mode.

    Folding then checks whether it is.
    """
    weight: Tensor
    bias: Tensor
    path: str = ""
    """The path of the norm in its model, such as `encoder.0.self`, set when the model is built."""
    clock: Clock = Clock()
    """The current step, set by `begin_step`."""
    phases: Mapping[str, bool] = {}
    """Whether each phase has not yet ended at this step, keyed by name. Empty outside a run."""
    ramps: tuple[Ramp, ...] = ()
    """The lengths of the phases of a run in which the norm behaves differently."""
    extra_loss: Tensor | None = None
    """A loss term of the last forward pass in training. A run adds it to the summed loss once."""
    most_positions: int | None = None  # the most positions a call may have; None for no limit
    by_position: bool = False  # whether each call is for a single position (recurrent layers)
    center_weights: bool = False  # whether to center the weight rows of the linear layers before

    def __init__(self, dim: int, *, scale: bool, shift: bool) -> None:
        super().__init__()
        self.dim = dim
        learn(self, "weight", torch.ones(dim), learned=scale)
        learn(self, "bias", torch.zeros(dim), learned=shift)

    @abstractmethod
    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        """Return `x` normalized, in the dtype of `x`. The output at padding is unspecified."""

    def gain_and_shift(self, z: Tensor) -> Tensor:
        """Return `weight z + bias`.

        Adding in place is faster than `addcmul`, in both the forward and the backward pass.
        """
        return (z * self.weight.to(z)).add_(self.bias.to(z))

    @property
    def batch_independent(self) -> bool:
        """Whether a sequence's output in eval mode does not depend on the rest of its batch."""
        return "batch" not in self.pools

    @property
    def sees_future(self) -> bool:
        """Whether a token's output in eval mode depends on later tokens of its sequence."""
        return "position" in self.pools

    @property
    def incremental(self) -> bool:
        """Whether tokens can be processed one at a time in eval mode: none depends on another."""
        return self.batch_independent and not self.sees_future

    def forgo_shift(self) -> None:
        """Fix the shift at 0.

        This is for norms whose formula has no shift, or whose shift an adjacent bias replaces.
        """
        fix_at_zero(self, "bias")

    def start_gain(self, value: float, *, key: str) -> None:
        """Scale the norm's initial output (without shift) by `value`.

        Raises UserError if no gain is learned. The error names `key`, the setting that needs it.
        """
        if not isinstance(self.weight, nn.Parameter):
            raise UserError(
                f"{key}: {type(self).__name__} learns no gain that could start at {value:g}; "
                "choose a norm with norm.affine=true or scale, or omit the setting"
            )
        nn.init.constant_(self.weight, value)

    def begin_step(self, clock: Clock) -> None:
        """Set the current step of the run.

        A forward pass reads phases as Python values, so a compiled layer is recompiled when a phase
        ends. A value that changes at every step must therefore be kept in a tensor, which
        subclasses fill by overriding this method.
        """
        last = self.last_steps(clock.total) if clock.step else {}
        self.clock, self.phases = clock, {name: clock.step <= end for name, end in last.items()}

    def last_steps(self, total: int | None) -> dict[str, int]:
        """Return the last step of each phase in a run of `total` steps, keyed by name.

        Raises UserError if `total` is None but a phase is a share of the run.
        """
        return {ramp.name: ramp.length(total) for ramp in self.ramps}

    def extra_repr(self) -> str:
        """Return the norm's path and settings, which `print(model)` shows."""
        values = {
            name: getattr(self, name, None) for name in inspect.signature(type(self)).parameters
        }
        plain = {n: v for n, v in values.items() if isinstance(v, bool | int | float | str)}
        shown = [f"{name}={value}" for name, value in plain.items() if name != "dim"]
        return ", ".join([str(self.dim), *shown, *([f"path={self.path}"] if self.path else [])])

    def __getstate__(self) -> dict[str, Any]:
        """Leave out `extra_loss`, which belongs to the last forward pass."""
        return {**vars(self), "extra_loss": None}


class NoNorm(Norm):
    """The identity, used where there is no norm."""

    pools: ClassVar[frozenset[Axis]] = frozenset()

    def __init__(self, dim: int) -> None:
        super().__init__(dim, scale=False, shift=False)

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        return x


def require_divisor(groups: int, dim: int) -> None:
    """Raise UserError unless `norm.groups` divides the width."""
    if dim % groups:
        raise UserError(f"norm.groups={groups} does not divide the width {dim}; use a divisor")


def learn(norm: Norm, name: str, value: Tensor, *, learned: bool) -> None:
    """Register `value` on the norm as a parameter if it is `learned`, otherwise as a constant."""
    if learned:
        norm.register_parameter(name, nn.Parameter(value))
    else:
        norm.register_buffer(name, value, persistent=False)


def fix_at_zero(norm: Norm, name: str) -> None:
    """Replace a parameter of the norm with the constant 0. Do nothing if it is not learned."""
    value = getattr(norm, name)
    if isinstance(value, nn.Parameter):
        delattr(norm, name)
        learn(norm, name, torch.zeros_like(value), learned=False)


def during(norm: Norm, phase: str) -> bool:
    """Return whether a phase of the norm has not yet ended. Outside a run, phases never end."""
    return norm.phases.get(phase, True)
