"""The base class of norms, which has the gain and the shift, and the identity, `NoNorm`."""

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
"""Whether a norm learns gain and shift. With `scale` it learns only the gain."""


def uncompiled(function: _Function) -> _Function:
    """Exclude a function from compilation, without loading torch._dynamo, which takes a second."""
    disabled = _disable_dynamo(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        compiles = "torch._dynamo" in sys.modules
        return (disabled if compiles else function)(*args, **kwargs)

    return cast("_Function", call)


class Norm(nn.Module, ABC):
    """Normalizes a `[B, P, D]` tensor with statistics over `pools`, then applies gain and shift.

    B is the number of sequences in the batch, P of positions, D of features. `weight` and `bias`
    have one value per feature: parameters if learned, otherwise the constants 1 and 0.
    """

    pools: ClassVar[frozenset[Axis]]
    exact_gradient: ClassVar[bool] = True
    """Whether the backward pass is the exact gradient of the forward pass in training."""
    foldable: ClassVar[bool] = False
    """Whether the norm may be a fixed scale and shift per feature in eval mode (folding checks
    this).
    """
    weight: Tensor
    bias: Tensor
    path: str = ""
    """Where the norm is in its model, such as `encoder.0.ffn.inner`; set where it is built."""
    clock: Clock = Clock()
    """The current step, set by `begin_step`."""
    phases: Mapping[str, bool] = {}
    """Whether each phase is still active at this step. It is empty outside a run."""
    ramps: tuple[Ramp, ...] = ()
    """The phases of a run in which the norm behaves differently, one after the other."""
    extra_loss: Tensor | None = None
    """A loss term of the last training forward pass, which a run adds to the summed loss once."""
    most_positions: int | None = None  # maximum per call; None for no limit
    by_position: bool = False  # a recurrent layer calls the norm once per position
    center_weights: bool = False  # center each weight row of the linear layers before the norm

    def __init__(self, dim: int, *, scale: bool, shift: bool) -> None:
        super().__init__()
        self.dim = dim
        learn(self, "weight", torch.ones(dim), learned=scale)
        learn(self, "bias", torch.zeros(dim), learned=shift)

    @abstractmethod
    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        """Return the normalized `x` in its own dtype. The output at padding is unspecified."""

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
        """Whether tokens can be processed one by one in eval mode: none depends on another."""
        return self.batch_independent and not self.sees_future

    def forgo_shift(self) -> None:
        """Fix the shift at 0, because the formula has none or an adjacent bias replaces it."""
        fix_at_zero(self, "bias")

    def start_gain(self, value: float, *, key: str) -> None:
        """Scale the norm's initial output (without shift) by `value`.

        Raises UserError, naming the setting `key` that asks for this, if no gain is learned.
        """
        if not isinstance(self.weight, nn.Parameter):
            raise UserError(
                f"{key}: {type(self).__name__} learns no gain that could start at {value:g}; "
                "choose a norm with norm.affine=true or scale, or omit the setting"
            )
        nn.init.constant_(self.weight, value)

    def begin_step(self, clock: Clock) -> None:
        """Set the step of the run.

        A forward pass reads phases as Python values, so a compiled layer is recompiled when a phase
        ends. A value that changes at every step must be in a tensor before the forward pass;
        subclasses write it there by overriding this method.
        """
        last = self.last_steps(clock.total) if clock.step else {}
        self.clock, self.phases = clock, {name: clock.step <= end for name, end in last.items()}

    def last_steps(self, total: int | None) -> dict[str, int]:
        """Return the last step of each phase, or raise UserError if this needs a known `total`."""
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
        """Omit `extra_loss`, which belongs to the last forward pass."""
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
    """Register `value` as a parameter of a norm if it is `learned`, otherwise as a constant."""
    if learned:
        norm.register_parameter(name, nn.Parameter(value))
    else:
        norm.register_buffer(name, value, persistent=False)


def fix_at_zero(norm: Norm, name: str) -> None:
    """Replace a parameter of a norm by the constant 0."""
    value = getattr(norm, name)
    if isinstance(value, nn.Parameter):
        delattr(norm, name)
        learn(norm, name, torch.zeros_like(value), learned=False)


def during(norm: Norm, phase: str) -> bool:
    """Return whether a phase of a norm has not ended at this step; always true outside a run."""
    return norm.phases.get(phase, True)
