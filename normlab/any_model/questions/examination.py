"""The model under inspection, and how much its outputs change between two passes."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

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
"""The largest relative change in float64 that can be rounding."""
BLIND = 1e-4
"""The relative change that float32 rounding can cause or hide if float64 cannot be used."""
ROUNDED_CONSTANTS = 2e-6
"""The relative change caused by constants that are rounded to float32, as in rotary positions.

Padding on the left shifts the positions, so other constants are used.
"""


Loss = Callable[[Any, Any], Any]
"""The user's loss of a model's output and a batch: a number, or a tensor with one entry."""


class PassPair(NamedTuple):
    """Two passes whose outputs should agree where they overlap.

    `within` selects the base without its padding if only real positions are to be compared.
    `unusual` is whether the variant has values under its padding that padding usually does not
    have.
    """

    variant: Example
    base: Example
    overlap: Overlap
    within: Example | None = None
    unusual: bool = False


@dataclass(frozen=True)
class OutputChange:
    """How much an output changes, in float64 and in the model's dtype.

    `output` is the name of the output, the one that changes most. `argmax` is the share of
    positions whose argmax changes in the model's dtype. If the change is not a finite number,
    `non_finite` says why.
    """

    in_float64: float
    in_model_dtype: float
    argmax: float
    output: str
    non_finite: NonFinite = ""


@dataclass(eq=False)
class Examination:
    """A model in eval mode with the example to run, and the user's batches and loss.

    The keys of `without_float64` are the reasons why float64 was not used; the keys of `compared`
    are the names of the outputs that were compared.
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
        """The model."""
        return self.runner.model

    @property
    def dtype(self) -> str:
        """The dtype of most weights: `bfloat16`."""
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
        """The largest relative change that rounding can cause in the model's dtype: 4 sqrt(eps)."""
        return 4 * torch.finfo(self.torch_dtype).eps ** 0.5

    @property
    def blind(self) -> bool:
        """Whether the device or some operation does not support float64."""
        return self.example.device.type == "mps" or bool(self.without_float64)

    @property
    def rows(self) -> list[int]:
        """The rows to examine: the longest, the first, the last and the middle one."""
        size = self.example.size
        return [*dict.fromkeys((self.example.longest, 0, size - 1, size // 2))]

    @property
    def fast_paths(self) -> tuple[bool, ...]:
        """Whether to use torch's fused encoder layers: False and, if the model has them, True."""
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

    def alone(self, row: int) -> Example:
        """Return a row alone, without its padding."""
        return self._cached(("alone", row), lambda: self.example.alone(row))

    def one(self, row: int) -> Example:
        """Return a row alone, with its padding."""
        if self.example.lengths[row] == self.example.length:
            return self.alone(row)
        return self._cached(("one", row), lambda: self.example.one(row))

    def _cached(self, key: Hashable, make: Callable[[], Example]) -> Example:
        if key not in self._variants:
            self._variants[key] = make()
        return self._variants[key]

    def without_cache(self) -> "Examination":
        """Return this examination without cached outputs, for a model that was changed."""
        return replace(self, _outputs={}, _variants={})

    def keep(self, variant: Example) -> None:
        """Cache the outputs of a variant that is compared more than once."""
        self._variants["kept", len(self._variants)] = variant

    def number(self, row: int) -> str:
        """Return a row's number in the user's batch, as text."""
        numbers = self.example.numbers
        return str(numbers[row]) if row < len(numbers) else f"{row} (made up)"

    def changes(self, comparisons: Mapping[str, PassPair]) -> dict[str, OutputChange]:
        """Return how much the outputs change in each comparison that the model can run.

        If it can run none of them, the first UserError is raised.
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
        """The norms, or an empty list if no question has needed them yet."""
        return self.norms if "search_for_norms" in vars(self) else []

    def outputs(self, variant: Example, *, in_float64: bool = False, fast: bool = False) -> Outputs:
        """Return the outputs of a pass. Outputs for single rows and for the batch are cached.

        Raises ModelFailed if the model fails, UserError if it returns no float tensor.
        """
        key = variant, in_float64, fast
        if key in self._outputs:
            return self._outputs[key]
        mode = float64_operations() if in_float64 else nullcontext()
        with fast_path(fast), mode as float64:
            outputs = self.runner(variant)
        if float64:
            self.without_float64 |= dict.fromkeys(sorted(float64.without_float64))
        if variant in self._variants.values() or variant is self.example:
            self._outputs[key] = outputs
        return outputs

    def change(self, comparison: PassPair) -> OutputChange:
        """Return how much the outputs of two passes differ, for the output that changes most.

        If torch's fused layers are tried too, the larger change is returned. They create tensors
        without float64 support, so their change is 0 unless it is too large for rounding.
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
        """Return, by name, the parts of two passes' outputs that should agree."""
        base, overlap = comparison.base, comparison.overlap
        y, y0 = (
            self.outputs(x, in_float64=in_float64, fast=fast) for x in (comparison.variant, base)
        )
        names = comparable(y0, y, y0, overlap)
        if not names:
            raise UserError("the two passes have no output in common")
        pairs = {name: overlap.nearest(y[name], y0[name]) for name in names}
        if comparison.within is None or comparison.within is base:
            return pairs
        real, padded = self.outputs(comparison.within), Padded(self.example.side)
        return {
            name: (padded.first(y, real[name])[0], padded.first(y0, real[name])[0])
            for name, (y, y0) in pairs.items()
        }

    def exceeds_rounding(self, comparison: PassPair) -> bool:
        """Return whether the outputs of two passes differ by more than rounding.

        The passes are run in the model's dtype, not in float64. Returns False if the model cannot
        run one of them.
        """
        try:
            return self.change_in_model_dtype(comparison) > self.largest_rounding
        except UserError:
            return False

    @property
    def largest_rounding(self) -> float:
        """The largest change of an output that counts as rounding before float64 is tried."""
        return BLIND if self.torch_dtype == torch.float32 else self.rounding

    def change_in_model_dtype(self, comparison: PassPair) -> float:
        """Return how much the outputs of two passes differ in the model's dtype."""
        overlap = comparison.overlap
        y, y0 = self.outputs(comparison.variant), self.outputs(comparison.base)
        names = comparable(y0, y, y0, overlap)
        return max(relative_change(*overlap.nearest(y[n], y0[n])) for n in names)


def _changed_argmax(y: Tensor, y0: Tensor) -> float:
    """Return the share of positions at which the argmax differs."""
    return float((y.argmax(-1) != y0.argmax(-1)).double().mean())
