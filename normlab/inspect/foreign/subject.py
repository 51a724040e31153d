"""The model under inspection: how far its output moves, and which module moves it."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.utils._pytree import tree_flatten, tree_unflatten

from normlab.errors import UserError
from normlab.inspect.foreign.calls import Call, inside, record
from normlab.inspect.foreign.example import Example, Forward, Overlap, run, tensors
from normlab.inspect.foreign.norms import FoundNorm, find_norms
from normlab.inspect.foreign.wide import widened
from normlab.inspect.model import movement

LEAK = 1e-9
"""The largest movement in float64 that can be rounding."""
AGREE = 1e-11  # largest movement between tensors that agree, in float64
ROUNDS, TRIES = 3, 6  # at most: modules to name, and suspects to try for each
Calls = dict[tuple[str, int], Call]
"""Calls by module name and how often the module was called before."""


@dataclass(frozen=True)
class Moved:
    """How far an output moves: in float64 (`wide`) and in the model's dtype (`narrow`).

    `argmax` is the share of positions whose argmax changes, in the model's dtype.
    """

    wide: float
    narrow: float
    argmax: float


@dataclass(eq=False)
class Foreign:
    """A model in eval mode with the example to run, and the user's batches, forward and loss.

    Row 0's outputs alone and in its batch are cached; `shape` is that of the whole batch's output.
    """

    model: nn.Module
    example: Example
    batches: Sequence[Any]
    forward: Forward | None = None
    loss: Any = None
    causal: bool | None = None
    shape: Sequence[int] = ()
    _outputs: dict[Any, Tensor] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What is examined: the model's class, size and dtype, and the rows."""
        size = sum(each.numel() for each in self.model.parameters())
        rows, length = self.example.size, self.example.length
        shown = f"{rows} rows" + f" of up to {length:,} positions" * bool(length)
        return f"{type(self.model).__name__}, {size:,} parameters in {self.dtype}; {shown}"

    @property
    def dtype(self) -> str:
        """The dtype of most weights: `bfloat16`."""
        sizes: Counter[torch.dtype] = Counter()
        for weight in self.model.parameters():
            sizes[weight.dtype] += weight.numel()
        return str(sizes.most_common(1)[0][0] if sizes else torch.get_default_dtype())[6:]

    @property
    def blind(self) -> bool:
        """Whether the device has no float64."""
        return self.example.device.type == "mps"

    @property
    def fast_paths(self) -> tuple[bool, ...]:
        """Settings of torch's fused encoder layer to try: off, and on if the model may use it."""
        fused = (nn.TransformerEncoderLayer, nn.MultiheadAttention)
        has = any(isinstance(module, fused) for module in self.model.modules())
        return (False, True) if has and mha.get_fastpath_enabled() else (False,)

    @cached_property
    def alone(self) -> Example:
        """Row 0 without the other rows."""
        return self.example.alone()

    @cached_property
    def norms(self) -> list[FoundNorm]:
        """All norms that a forward pass calls."""
        return find_norms(self.model, self.example, self.forward)

    def output(self, variant: Example, *, wide: bool = False, fast: bool = False) -> Tensor:
        """Return row 0's output for a variant, at the real positions of row 0 alone.

        Raises ModelFailed if the model fails, UserError if its output has other axes.
        """
        key = variant, wide, fast
        if key in self._outputs:
            return self._outputs[key]
        former = mha.get_fastpath_enabled()
        try:
            mha.set_fastpath_enabled(fast)
            with torch.no_grad(), widened() if wide else nullcontext():
                y = run(self.model, variant, self.forward)
        finally:
            mha.set_fastpath_enabled(former)
        if variant is self.example:
            self.shape = y.shape
        if variant is not self.alone:
            y = variant.overlap(y, self.output(self.alone, wide=wide, fast=fast))[0].clone()
        if variant in (self.alone, self.example):
            self._outputs[key] = y
        return y

    def moved(self, variant: Example, base: Example | None = None) -> Moved:
        """Return how far a variant's output is from a base's, by default from row 0's alone.

        With several fast paths, the largest movement counts.
        """

        def outputs(wide: bool, fast: bool) -> tuple[Tensor, Tensor]:
            y0 = self.output(base or self.alone, wide=wide, fast=fast)
            return self.output(variant, wide=wide, fast=fast), variant.overlap(y0, y0)[0]

        found: list[Moved] = []
        for fast in self.fast_paths:
            y, y0 = outputs(False, fast)
            narrow = moved(y, y0)
            wide = narrow if self.blind else moved(*outputs(True, fast))
            found.append(Moved(wide, narrow, _argmax(y, y0)))
        return max(found, key=lambda each: each.wide)

    def rounding(self) -> Moved:
        """Return how far the shortest row alone is from the same row in its batch.

        Only the model's dtype is used: without leaks, this is rounding. Raises UserError if the
        row is too short for the model, or the output has no batch axis.
        """
        example, last = self.example, self.example.size - 1
        alone = self.output(self.alone).shape
        with torch.no_grad():
            batch = run(self.model, example, self.forward)
            y0 = run(self.model, example.alone(last), self.forward)
        axes = [n for n, size in enumerate(alone) if size != batch.shape[n]]
        if not axes:
            raise UserError("the output has no batch axis")
        y, y0 = Overlap(example.side)(batch.narrow(axes[0], last, 1), y0)
        return Moved(0.0, moved(y, y0), _argmax(y, y0))


def _argmax(y: Tensor, y0: Tensor) -> float:
    return float((y.argmax(-1) != y0.argmax(-1)).double().mean())


def moved(values: Tensor, base: Tensor) -> float:
    """Return RMS(values - base) / RMS(base); infinite if only one of them has a NaN or infinity."""
    if not math.isfinite(change := movement(values, base)):
        odd = ~base.isfinite() & ((values == base) | (values.isnan() & base.isnan()))
        change = movement(values.masked_fill(odd, 0), base.masked_fill(odd, 0))
    return change if change == change else math.inf


def locate(about: Foreign, variant: Example, base: Example, seen: str) -> tuple[str | None, str]:
    """Return the path of the module that moves a variant's output, and a sentence about it.

    The path is "" for the model itself, and None if no module explains the movement; `seen` is what
    the output should not depend on, such as `padding`.

    The suspects are the innermost modules whose inputs agree and whose output moves. That alone
    proves nothing: the output of a relative-position table moves with the length, as it should. So
    a suspect is named only if the model's output moves at most half as much once the suspect's
    output, and that of the same modules in other layers, is replaced by the base's values.
    """
    model, overlap = about.model, variant.overlap
    kept: set[str] = set()
    places: list[tuple[str, str]] = []
    left = 0.0
    with torch.no_grad(), widened():
        calls, y = record(model, base, about.forward)
        former = {(call.name, call.number): call for call in calls}
        for _ in range(ROUNDS):
            with _keeping(model, former, kept, overlap):
                calls, output = record(model, variant, about.forward)
            left = moved(*overlap(output, y))
            found = {(call.name, call.number): call for call in calls}
            tries: list[tuple[float, int, Call]] = []
            for call in _suspects(former, found, overlap)[: TRIES if left > LEAK else 0]:
                names = kept | _alike(call, former)
                with suppress(UserError), _keeping(model, former, names, overlap):
                    again = moved(*overlap(run(model, variant, about.forward), y))
                    tries.append((again, len(tries), call))
                    if again <= LEAK:
                        break
            if not tries or (best := min(tries))[0] > left / 2:
                break
            left, _, call = best
            kept |= _alike(call, former)
            places.append(_described(call, former, found, overlap, seen))
            if left <= LEAK:
                break
    if not places:
        return None, "no single module explains it"
    path, text = places[0]
    more = f"; also {', '.join(each for each, _ in places[1:])}" * (len(places) > 1)
    part = "; this explains only part of the movement" * (left > LEAK)
    return path, f"{path or 'the model itself'}: {text}{more}{part}"


def _alike(call: Call, calls: Calls) -> set[str]:
    """Return the called modules with this class and this path, up to the numbers in the path."""

    def kind(each: Call) -> tuple[str, type]:
        return re.sub(r"\d+", "*", each.name), type(each.module)

    return {each.name for each in calls.values() if kind(each) == kind(call)}


def _suspects(former: Calls, found: Calls, overlap: Overlap) -> list[Call]:
    """Return the innermost calls whose inputs agree and whose output moves."""
    odd = [
        call
        for key, call in found.items()
        if key in former
        and _agree(former[key].given, call.given, overlap)
        and not _agree(former[key].output, call.output, overlap)
    ]
    return [call for call in odd if not any(inside(other.name, call.name) for other in odd)]


def _agree(former: Any, found: Any, overlap: Overlap) -> bool:
    """Return whether all tensors in two nested values agree where they overlap."""
    before, after = [*tensors(former)], [*tensors(found)]
    try:
        pairs = [overlap(y, y0) for y, y0 in zip(after, before, strict=True)]
    except ValueError:  # different numbers of tensors or axes
        return False
    return all(
        moved(y, y0) <= AGREE if y0.is_floating_point() else torch.equal(y, y0) for y, y0 in pairs
    )


@contextmanager
def _keeping(
    model: nn.Module, former: Calls, names: Collection[str], overlap: Overlap
) -> Iterator[None]:
    """Replace the outputs of the named modules by those of the `former` calls."""
    counts: Counter[str] = Counter()

    def keep(name: str, module: nn.Module, args: Any, output: Any) -> Any:
        call = former.get((name, counts[name]))
        counts[name] += 1
        parts, structure = tree_flatten(output)
        values = tree_flatten(call.output)[0] if call else []
        for number, (y, value) in enumerate(zip(parts, values, strict=False)):
            if isinstance(y, Tensor) and isinstance(value, Tensor):
                parts[number] = y.clone()
                with suppress(UserError):
                    target, source = overlap(parts[number], value)
                    target.copy_(source)
        return tree_unflatten(parts, structure)

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name in names:
                hooks.callback(module.register_forward_hook(partial(keep, name)).remove)
        yield


def _described(
    call: Call, former: Calls, found: Calls, overlap: Overlap, seen: str
) -> tuple[str, str]:
    """Return a suspect's path, and a description of it."""
    name = type(call.module).__name__
    alike = len(_alike(call, former))
    more = f" (and {alike - 1} like it)" * (alike > 1)
    for key, inner in found.items():
        if not inside(inner.name, call.name) or key not in former:
            continue
        if not _agree(former[key].given, inner.given, overlap):
            if any(x.is_floating_point() for x in tensors(inner.given)):
                return call.name, f"{name}, in its own forward, before `{inner.name}`{more}"
            return inner.name, f"{type(inner.module).__name__}, gets different indices from {name}"
    return call.name, f"{name}, {_how(call.module, seen)}{more}"


def _how(module: nn.Module, seen: str) -> str:
    """Return how `seen`, which should not matter, gets into the module's output."""
    name = type(module).__name__.lower()
    if "norm" in name:
        return f"pools over {'the batch' if seen == 'other rows' else 'position'}, {seen} included"
    if "conv" in name:
        size = "x".join(map(str, getattr(module, "kernel_size", ())))
        return f"a convolution{f' of size {size}' * bool(size)} that reaches into {seen}"
    if "drop" in name or seen == "random numbers":
        return "draws random numbers"
    return f"attends to {seen}" if "att" in name else f"mixes in {seen}"
