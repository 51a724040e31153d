"""Finds the modules that change an output, by replacing their outputs with the base pass's."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from normlab.any_model.batches.outputs import Outputs, tensors
from normlab.any_model.questions.examination import (
    LEAK,
    LEAK_IN_FLOAT32,
    Examination,
    PassPair,
)
from normlab.any_model.tracing.calls import Call, inside, slow_path
from normlab.any_model.tracing.class_names import (
    class_name,
    is_attention,
    is_convolution,
    is_dropout,
)
from normlab.any_model.tracing.float64 import float64_operations
from normlab.any_model.tracing.norm_modules import is_norm
from normlab.any_model.tracing.scripted import hooked
from normlab.errors import UserError
from normlab.findings.relative_change import relative_change

AGREE = 1e-11  # largest relative change between tensors that agree, in float64
ROUNDS, TRIES = 4, 6
"""The largest number of modules to report, and of suspects to try for each of them."""
Cause = Literal["padding", "other rows", "later tokens", "random numbers"]
"""What an output should not depend on."""
Calls = dict[tuple[str, int], Call]
"""Calls, keyed by the module's path and by how often it was called before."""


@dataclass(frozen=True)
class CulpritPlace:
    """A module that changes an output, and the number of its copies in other layers.

    `before` is the path of the first module inside it whose inputs already differ, so the change is
    made by the outer module's own code before that call. `caller` is the module that passes
    different indices to this one, if that is what changes the output.
    """

    path: str
    module: nn.Module
    copies: int = 0
    before: str | None = None
    caller: nn.Module | None = None


@dataclass(frozen=True)
class Culprit:
    """The modules that cause a change, most important first, and whether they explain all of it.

    `places` is empty if no module explains at least half of the change.
    """

    places: Sequence[CulpritPlace] = ()
    explains_all: bool = False

    @property
    def path(self) -> str | None:
        """The path of the first module ("" for the model itself), or None if there is none."""
        return self.places[0].path if self.places else None


def locate(examination: Examination, comparison: PassPair, output: str) -> Culprit:
    """Return the modules that change an output between two passes.

    The suspects are the innermost modules whose inputs agree and whose outputs differ. That alone
    proves nothing: the output of a relative-position table depends on the length, as it should. So
    the outputs of a suspect and of its copies in other layers are replaced by the base's. It is
    reported only if the model's output then changes at most half as much.
    """
    try:
        with nullcontext() if examination.lacks_float64 else float64_operations():
            return _Search(examination, comparison, output).culprit()
    except UserError:  # the model cannot be run with replaced outputs, or not in float64
        return Culprit()


def culprit_in_words(culprit: Culprit, cause: Cause) -> str:
    """Describe which module changes an output, and how `cause` gets into it."""
    if not culprit.places:
        return "no single module explains it"
    first, *others = culprit.places
    parts = [f"{first.path or 'the model itself'}: {_in_words(first, cause)}"]
    if others:
        parts.append(f"also {', '.join(place.path for place in others)}")
    if not culprit.explains_all:
        parts.append("this explains only part of the change")
    return "; ".join(parts)


def _in_words(place: CulpritPlace, cause: Cause) -> str:
    name = class_name(place.module)
    copies = f" (and {place.copies} like it)" if place.copies else ""
    if place.caller is not None:
        return f"{name}, which gets different indices from {class_name(place.caller)}"
    if place.before is not None:
        return f"{name}, in its own forward, before `{place.before}`{copies}"
    return f"{name}, {_how(place.module, cause)}{copies}"


def _how(module: nn.Module, cause: Cause) -> str:
    """Describe how `cause` gets into the module's output, judging by its class."""
    if is_norm(module):
        axis = "the batch" if cause == "other rows" else "position"
        return f"pools over {axis}, {cause} included"
    if is_convolution(module):
        size = "x".join(map(str, getattr(module, "kernel_size", ())))
        of_size = f" of size {size}" if size else ""
        return f"a convolution{of_size} that reaches into {cause}"
    if cause == "random numbers" or is_dropout(module):
        return "draws random numbers"
    how = f"attends to {cause}" if is_attention(module) else f"mixes in {cause}"
    if getattr(module, "batch_first", True) or cause != "other rows":
        return how
    return f"{how}, because it is not batch_first (if rows are on axis 1, set rows=1)"


class _Try(NamedTuple):
    """A suspect, and the change that remains if its outputs and its copies' are replaced.

    Of suspects that explain the change equally well, the one tried first is chosen. It has the
    lowest `number`.
    """

    remaining: float
    number: int
    suspect: Call


class _Search:
    """A search for the modules that change one output between two passes.

    `base` has the calls of the base pass, and `outputs` all of its outputs. Tensors agree up to a
    relative change of `same`, and the search ends when the output changes by at most `limit`.
    """

    def __init__(self, examination: Examination, comparison: PassPair, output: str) -> None:
        self.run, self.output = examination.runner, output
        self.variant, self.overlap = comparison.variant, comparison.overlap
        self.same, self.limit = AGREE, LEAK
        if examination.lacks_float64:
            self.same = self.limit = LEAK_IN_FLOAT32
        calls, self.outputs = self.run.record(comparison.base)
        self.base = _by_number(calls)

    def culprit(self) -> Culprit:
        """Replace outputs of the most important modules until the output equals the base's."""
        replaced: set[str] = set()
        places: list[CulpritPlace] = []
        remaining = total = 0.0
        for number in range(ROUNDS):
            calls, outputs = self.run.record(self.variant, self._replaced(replaced))
            remaining = self._change(outputs)
            total = total or remaining
            variant = _by_number(calls)
            tries = self._tries(variant, replaced) if remaining > self.limit else []
            # A leak may enter in several modules in a row: fixing only the first changes little.
            if not tries or (number + 1 == ROUNDS and min(tries).remaining > remaining / 2):
                break
            remaining, _, call = min(tries)
            replaced |= self._copies(call)
            places.append(self._place(call, variant))
            if remaining <= self.limit:
                break
        if not places or remaining > total / 2:
            return Culprit()
        return Culprit(places, explains_all=remaining <= self.limit)

    def _change(self, outputs: Outputs) -> float:
        pairs = self.overlap.pairs(outputs, self.outputs)
        return relative_change(*pairs[self.output].nearest())

    def _tries(self, variant: Calls, replaced: set[str]) -> list[_Try]:
        """Replace the outputs of each suspect, until one explains the whole change."""
        tries: list[_Try] = []
        for call in self._suspects(variant)[:TRIES]:
            with suppress(UserError):
                context = self._replaced(replaced | self._copies(call))
                remaining = self._change(self.run(self.variant, slow_path(), context))
                tries.append(_Try(remaining, len(tries), call))
                if remaining <= self.limit:
                    break
        return tries

    def _suspects(self, variant: Calls) -> list[Call]:
        """Return the innermost calls whose inputs agree and whose outputs differ."""
        suspects = [
            call
            for key, call in variant.items()
            if key in self.base
            and self._agree(self.base[key].inputs, call.inputs)
            and not self._agree(self.base[key].output, call.output)
        ]
        paths = [call.name for call in suspects]
        return [call for call in suspects if not any(inside(path, call.name) for path in paths)]

    def _copies(self, call: Call) -> set[str]:
        """Return the paths of a module and its copies.

        Copies have the same class, and their paths differ only in numbers.
        """

        def kind(call: Call) -> tuple[str, str]:
            return re.sub(r"\d+", "*", call.name), class_name(call.module)

        return {other.name for other in self.base.values() if kind(other) == kind(call)}

    def _place(self, call: Call, variant: Calls) -> CulpritPlace:
        """Return where in a call the change is made.

        If the inputs of a call inside it already differ, its own code changes them before that
        call. If these inputs are all integers, it passes different indices.
        """
        copies = max(len(self._copies(call)) - 1, 0)
        for key, inner in variant.items():
            if not inside(inner.name, call.name) or key not in self.base:
                continue
            if not self._agree(self.base[key].inputs, inner.inputs):
                if any(x.is_floating_point() for x in tensors(inner.inputs)):
                    return CulpritPlace(call.name, call.module, copies, before=inner.name)
                return CulpritPlace(inner.name, inner.module, caller=call.module)
        return CulpritPlace(call.name, call.module, copies)

    def _agree(self, base: Any, variant: Any) -> bool:
        """Return whether all tensors in two nested values agree where they overlap."""
        ys, bases = [*tensors(variant)], [*tensors(base)]
        if len(ys) != len(bases):
            return False
        try:
            nearest = [self.overlap.nearest(*pair) for pair in zip(ys, bases, strict=True)]
        except UserError:  # different axes
            return False
        return all(
            relative_change(y, y0) <= self.same if y0.is_floating_point() else torch.equal(y, y0)
            for y, y0 in nearest
        )

    @contextmanager
    def _replaced(self, names: Collection[str]) -> Iterator[None]:
        """Replace the outputs of the named modules by the base's where they overlap."""
        counts: Counter[str] = Counter()

        def replace(name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            call = self.base.get((name, counts[name]))
            counts[name] += 1
            parts, structure = tree_flatten(output)
            values = tree_flatten(call.output)[0] if call else []
            for number, (y, value) in enumerate(zip(parts, values, strict=False)):
                if isinstance(y, Tensor) and isinstance(value, Tensor):
                    parts[number] = y.clone()
                    with suppress(UserError):
                        target, source = self.overlap.first(parts[number], value)
                        target.copy_(source)
            return tree_unflatten(parts, structure)

        modules = dict(self.run.model.named_modules())
        with hooked({name: modules[name] for name in modules if name in names}, None, replace):
            yield


def _by_number(calls: Sequence[Call]) -> Calls:
    return {(call.name, call.number): call for call in calls}
