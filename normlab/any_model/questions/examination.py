"""The model under inspection, and how much its outputs change between two passes."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.backends import mha

from normlab.any_model.batches.example import Example
from normlab.any_model.batches.outputs import Outputs
from normlab.any_model.batches.overlap import Overlap, Padded, comparable
from normlab.any_model.tracing.calls import Runner, fast_path
from normlab.any_model.tracing.float64 import float64_operations
from normlab.any_model.tracing.found_norms import FoundNorm, FoundNorms, find_norms
from normlab.errors import UserError
from normlab.findings.relative_change import NonFinite, relative_change, why_not_finite

LEAK = 1e-9
"""The largest relative change of an output that rounding can cause in float64."""
LEAK_IN_FLOAT32 = 1e-4
"""The same in float32, which is used if float64 is not supported. Smaller leaks go unseen."""
ROUNDED_CONSTANTS = 2e-6
"""The largest relative change caused by constants that are rounded to float32.

Padding on the left shifts the positions, so a model with rotary positions uses other constants.
"""

Measured = TypeVar("Measured")
Loss = Callable[[Any, Any], Any]
"""The user's loss, given a model's output and a batch: a number, or a tensor with one entry."""


class PassPair(NamedTuple):
    """Two passes whose outputs should agree where they overlap.

    `within` is the base without its padding, if only real positions are to be compared. `unusual`
    is whether the variant's padding has values that padding usually does not have.
    """

    variant: Example
    base: Example
    overlap: Overlap
    within: Example | None = None
    unusual: bool = False


@dataclass(frozen=True)
class OutputChange:
    """The relative change of an output between two passes, in float64 and in the model's dtype.

    `output` is the name of the output, which is the one that changes most. `argmax` is the share of
    positions at which its argmax changes in the model's dtype. If the change is not finite,
    `non_finite` is the reason.
    """

    in_float64: float
    in_model_dtype: float
    argmax: float
    output: str
    non_finite: NonFinite = ""


@dataclass(eq=False)
class Examination:
    """A model in eval mode, the example to run it on, and the results that questions share.

    `batches`, `loss` and `causal` are the user's arguments. The keys of `without_float64` are the
    reasons why float64 was not used, and the keys of `compared` are the names of the outputs
    compared so far, both in order. Outputs are cached for the example and for all `_variants`.
    """

    runner: Runner
    example: Example
    batches: Sequence[Any]
    loss: Loss | None = None
    causal: bool | None = None
    without_float64: dict[str, None] = field(default_factory=dict)
    compared: dict[str, None] = field(default_factory=dict)
    _outputs: dict[tuple[Example, bool, bool], Outputs] = field(default_factory=dict)
    _variants: dict[Hashable, Example] = field(default_factory=dict)

    @property
    def model(self) -> nn.Module:
        """The model under inspection."""
        return self.runner.model

    @property
    def dtype(self) -> str:
        """The name of the dtype of most weights, such as `bfloat16`."""
        return str(self.torch_dtype).removeprefix("torch.")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of most weights."""
        sizes: Counter[torch.dtype] = Counter()
        for weight in self.model.parameters():
            sizes[weight.dtype] += weight.numel()
        return sizes.most_common(1)[0][0] if sizes else torch.get_default_dtype()

    @property
    def rounding(self) -> float:
        """The largest relative change that rounding causes in the model's dtype: 4 sqrt(eps)."""
        return 4 * torch.finfo(self.torch_dtype).eps ** 0.5

    @property
    def lacks_float64(self) -> bool:
        """Whether float64 cannot be used because of the device or some operation."""
        return self.example.device.type == "mps" or bool(self.without_float64)

    @property
    def rows(self) -> list[int]:
        """The indices of the rows to examine: the longest, first, last and middle row."""
        size = self.example.size
        return [*dict.fromkeys((self.example.longest, 0, size - 1, size // 2))]

    @property
    def fast_paths(self) -> tuple[bool, ...]:
        """The values of `fast` to try: False and, if torch can fuse layers of the model, True."""
        fused = (nn.TransformerEncoderLayer, nn.MultiheadAttention)
        has = any(isinstance(module, fused) for module in self.model.modules())
        return (False, True) if has and mha.get_fastpath_enabled() else (False,)

    @property
    def longest_row(self) -> Example:
        """The longest row alone, without its padding."""
        return self.alone(self.example.longest)

    @property
    def outputs_with_nan(self) -> list[str]:
        """The names of the longest row's outputs that contain NaN."""
        return [name for name, y in self.outputs(self.longest_row).items() if bool(y.isnan().any())]

    def alone(self, row: int, *, with_padding: bool = False) -> Example:
        """Return a row alone, by default without its padding. Its outputs are cached."""
        has_padding = self.example.lengths[row] < self.example.length
        key = row, with_padding and has_padding
        if key not in self._variants:
            self._variants[key] = self.example.alone(row, with_padding=key[1])
        return self._variants[key]

    def without_cache(self) -> "Examination":
        """Return a copy with an empty cache, to be used while the model is changed."""
        return replace(self, _outputs={}, _variants={})

    def keep(self, variant: Example) -> None:
        """Cache the outputs of a variant that is compared more than once."""
        self._variants["kept", len(self._variants)] = variant

    def row_label(self, row: int) -> str:
        """Return a row's index in the user's batch as text, with a remark if the row was added."""
        indices = self.example.row_indices
        return str(indices[row]) if row < len(indices) else f"{row} (made up)"

    def changes(self, comparisons: Mapping[str, PassPair]) -> dict[str, OutputChange]:
        """Return how much the outputs change in each comparison that the model can run.

        Raises the first UserError if the model can run none of them.
        """
        changes: dict[str, OutputChange] = {}
        errors: list[UserError] = []
        for name, comparison in comparisons.items():
            try:
                changes[name] = self.change(comparison)
            except UserError as error:
                errors.append(error)
        if errors and not changes:
            raise errors[0]
        return changes

    @cached_property
    def search_for_norms(self) -> FoundNorms:
        """The norms that a forward pass calls, and those that could not be examined."""
        return find_norms(self.runner, self.example)

    @property
    def norms(self) -> list[FoundNorm]:
        """The norms that a forward pass calls and that could be examined."""
        return self.search_for_norms.norms

    @property
    def norms_so_far(self) -> list[FoundNorm]:
        """The norms, or an empty list if no question has searched for them yet."""
        return self.norms if "search_for_norms" in vars(self) else []

    def outputs(self, variant: Example, *, in_float64: bool = False, fast: bool = False) -> Outputs:
        """Return a model's outputs for a variant, from the cache if they are there.

        If `fast`, torch may fuse layers. Raises ModelFailed if the model fails, UserError if it
        returns no float tensor, or NaN in float64 but not in its own dtype.
        """
        key = variant, in_float64, fast
        if key in self._outputs:
            return self._outputs[key]
        with self.operations(in_float64=in_float64):
            outputs = self.runner(variant, fast_path(fast))
        if in_float64:
            self._check_for_nan(outputs, variant, fast=fast)
        if variant in self._variants.values() or variant is self.example:
            self._outputs[key] = outputs
        return outputs

    def _check_for_nan(self, in_float64: Outputs, variant: Example, *, fast: bool) -> None:
        """Raise UserError if outputs have NaN in float64 but not in the model's dtype.

        Then two such outputs would be equal whatever the inputs are.
        """
        if not any(bool(y.isnan().any()) for y in in_float64.values()):
            return
        for name, y in self.outputs(variant, fast=fast).items():
            if name in in_float64 and bool((in_float64[name].isnan() & ~y.isnan()).any()):
                raise UserError(f"its output is NaN in float64, but not in {self.dtype}")

    @contextmanager
    def operations(self, *, in_float64: bool) -> Iterator[None]:
        """Run operations in float64, or as the model does, and note those that lack float64."""
        if not in_float64:
            yield
            return
        with float64_operations() as float64:
            yield
        self.without_float64 |= dict.fromkeys(sorted(float64.without_float64))

    def in_widest_dtype(self, measure: Callable[[bool], Measured]) -> Measured:
        """Return `measure(True)`, which runs in float64.

        If the model cannot be run in float64, return `measure(False)`, in the model's dtype.
        """
        if self.example.device.type == "mps":
            return measure(False)
        try:
            return measure(True)
        except UserError as error:
            result = measure(False)
            self.without_float64[f"the model ({error})"] = None
            return result

    def largest_rounding(self, *, in_float64: bool) -> float:
        """Return the largest relative change that rounding causes, in float64 or as the model."""
        if not in_float64:
            return self.rounding
        return LEAK_IN_FLOAT32 if self.lacks_float64 else LEAK

    def change(self, comparison: PassPair) -> OutputChange:
        """Return the change of the output that changes most between two passes.

        If the model has layers that torch fuses, the passes are run without and with fused layers,
        and the larger change is returned. If the fused layers do not support float64, their change
        in float64 is set to 0, unless the one in the model's dtype is too large for rounding.
        """
        change = self._change(comparison, fast=False)
        if True not in self.fast_paths:
            return change
        try:
            fused = self._change(comparison, fast=True)
        except UserError:
            return change
        return max(change, fused, key=lambda change: change.in_float64)

    def _change(self, comparison: PassPair, *, fast: bool) -> OutputChange:
        pairs = pairs_in_model_dtype = self._pairs(comparison, in_float64=False, fast=fast)
        self.compared |= dict.fromkeys(pairs)
        changes = {name: relative_change(*pair) for name, pair in pairs.items()}
        changes_in_float64 = dict(changes)
        if self.example.device.type != "mps":
            try:
                pairs = self._pairs(comparison, in_float64=True, fast=fast)
                changes_in_float64 = {n: relative_change(*pair) for n, pair in pairs.items()}
            except UserError as error:
                if fast:  # nested tensors
                    changes_in_float64 = {
                        n: x if x > self.rounding else 0.0 for n, x in changes.items()
                    }
                else:
                    self.without_float64[f"the model ({error})"] = None
        in_both = {n: (x, changes.get(n, 0.0)) for n, x in changes_in_float64.items()}
        name = max(in_both, key=lambda name: in_both[name])
        pair = pairs_in_model_dtype.get(name)
        argmax = _changed_argmax(*(pair or next(iter(pairs_in_model_dtype.values()))))
        why = why_not_finite(*pairs[name]) or (why_not_finite(*pair) if pair else "")
        return OutputChange(*in_both[name], argmax, name, why)

    def _pairs(
        self, comparison: PassPair, *, in_float64: bool, fast: bool
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the parts of two passes' outputs that should agree, keyed by output."""
        base, overlap = comparison.base, comparison.overlap
        y, y0 = (
            self.outputs(x, in_float64=in_float64, fast=fast) for x in (comparison.variant, base)
        )
        pairs = {name: pair.nearest() for name, pair in comparable(y, y0, overlap).items()}
        if comparison.within is None or comparison.within is base:
            return pairs
        real, padded = self.outputs(comparison.within), Padded(self.example.side)
        return {
            name: (padded.first(y, real[name])[0], padded.first(y0, real[name])[0])
            for name, (y, y0) in pairs.items()
        }

    def differs(self, comparison: PassPair, *, in_float64: bool, limit: float) -> bool:
        """Return whether an output changes by more than `limit` between two passes.

        Raises UserError if the model cannot run one of them.
        """
        passes = (comparison.variant, comparison.base)
        y, y0 = (self.outputs(x, in_float64=in_float64) for x in passes)
        pairs = comparable(y, y0, comparison.overlap).values()
        return any(relative_change(*pair.nearest()) > limit for pair in pairs)


def _changed_argmax(y: Tensor, y0: Tensor) -> float:
    """Return the share of positions at which the argmax over the last axis differs."""
    return float((y.argmax(-1) != y0.argmax(-1)).double().mean())
