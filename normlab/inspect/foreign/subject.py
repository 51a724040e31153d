"""The module under inspection, and the outputs that the questions compare."""

import math
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from normlab.inspect.foreign.batches import example_of, first_batches
from normlab.inspect.foreign.example import Example, Fit, Forward, ModelFailed, run
from normlab.inspect.foreign.report import Report
from normlab.inspect.foreign.unchanged import unchanged
from normlab.inspect.foreign.wide import WIDE, widened
from normlab.inspect.model import movement
from normlab.inspect.question import Finding, questions

if TYPE_CHECKING:
    from normlab.inspect.foreign.norms import FoundNorm

LEAK = 1e-9
"""The largest movement in float64 that can be rounding."""


@dataclass(frozen=True)
class Moved:
    """How far an output moves: in float64 (`wide`) and in the model's dtype (`narrow`).

    `argmax` is the share of positions whose argmax changes, in the model's dtype.
    """

    wide: float
    narrow: float
    argmax: float


@dataclass(frozen=True, eq=False)
class Foreign:
    """A model in eval mode with the example to run, and the user's batches, forward and loss.

    The output of the example's row 0 alone is computed before anything is asked, and kept.
    """

    model: nn.Module
    example: Example
    batches: Sequence[Any]
    forward: Forward | None = None
    loss: Any = None
    causal: bool | None = None
    shapes: dict[str, torch.Size] = field(default_factory=dict)  # of whole outputs, by variant
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
    def pads(self) -> int:
        """By how many positions a row is padded: half its length, at least 8."""
        return max(8, self.example.length // 2)

    @property
    def fast_paths(self) -> tuple[bool, ...]:
        """Settings of torch's fused encoder layer to try: off, and on if the model may use it."""
        fused = (nn.TransformerEncoderLayer, nn.MultiheadAttention)
        has = any(isinstance(module, fused) for module in self.model.modules())
        return (False, True) if has and torch.backends.mha.get_fastpath_enabled() else (False,)

    @cached_property
    def norms(self) -> "list[FoundNorm]":
        """All norms that a forward pass calls."""
        from normlab.inspect.foreign.norms import find_norms

        return find_norms(self)

    def variant(self, name: str) -> tuple[Example, Fit]:
        """Return a variant of the example, and which part of its tensors is also in row 0 alone.

        After `short, `, the row is first cut so that with padding it has the example's length.
        """
        example, n, whole, padded = self.example, self.pads, Fit(), Fit(self.example.side)
        if name.startswith("short"):
            padded = Fit(example.side, example.length, example.length - n)
            example = example.cut(example.tokens, 0, example.length - n)
        match name.removeprefix("short, "):
            case "padded":
                return example.padded(n), padded
            case "padded by other values":
                return example.padded(n, other=True), padded
            case "later tokens":
                half = example.steps // 2
                return example.with_later_tokens(half), Fit("right", example.steps, half)
            case "other rows":
                return example.with_other_rows(), whole
            case "two rows":
                return example.cut(example.rows, 0, 2), whole
            case "batch" | "in training":
                return example, whole
        return example.alone(), whole  # "alone", or "again" for a second run

    def output(self, name: str, *, wide: bool = False, fast: bool = False) -> Tensor:
        """Return row 0's real output for a variant; the bases `alone` and `batch` are cached.

        Raises ModelFailed if the model fails, ValueError if its output has other axes.
        """
        key = name, wide, fast
        if key in self._outputs:
            return self._outputs[key]
        variant, fit = self.variant(name)
        former = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(fast)
        with torch.no_grad(), widened() if wide else nullcontext():
            y = run(self.model, variant, self.forward)
        torch.backends.mha.set_fastpath_enabled(former)
        self.shapes[name] = y.shape
        if name != "alone":
            y = fit(y, self.output("alone", wide=wide, fast=fast))[0].clone()
        if name in ("alone", "batch"):
            self._outputs[key] = y
        return y

    def moved(self, name: str, base: str = "alone") -> Moved:
        """Return how far a variant's output is from another's; the largest over the fast paths."""
        _, fit = self.variant(name)

        def outputs(wide: bool, fast: bool) -> tuple[Tensor, Tensor]:
            y0 = self.output(base, wide=wide, fast=fast)
            return self.output(name, wide=wide, fast=fast), fit(y0, y0)[0]

        found: list[Moved] = []
        for fast in self.fast_paths:
            y, y0 = outputs(False, fast)
            narrow = moved(y, y0)
            wide = narrow if self.blind else moved(*outputs(True, fast))
            found.append(Moved(wide, narrow, _argmax(y, y0)))
        return max(found, key=lambda each: each.wide)

    def rounding(self) -> Moved:
        """Return how far the shortest row alone is from the same row in its batch.

        In the model's dtype: in a model without leaks, this is rounding. Raises ValueError if the
        row is too short for the model, or the output has no batch axis.
        """
        example, last = self.example, self.example.size - 1
        alone = self.output("alone").shape
        with torch.no_grad():
            batch = run(self.model, example, self.forward)
            y0 = run(self.model, example.alone(last), self.forward)
        axes = [n for n, size in enumerate(alone) if size != batch.shape[n]]
        if not axes:
            raise ValueError("the output has no batch axis")
        y, y0 = Fit(example.side)(batch.narrow(axes[0], last, 1), y0)
        return Moved(0.0, moved(y, y0), _argmax(y, y0))


def _argmax(y: Tensor, y0: Tensor) -> float:
    return float((y.argmax(-1) != y0.argmax(-1)).double().mean())


def moved(values: Tensor, base: Tensor) -> float:
    """Return RMS(values - base) / RMS(base); infinite if only one of them has a NaN or infinity."""
    if not math.isfinite(change := movement(values, base)):
        odd = ~base.isfinite() & ((values == base) | (values.isnan() & base.isnan()))
        change = movement(values.masked_fill(odd, 0), base.masked_fill(odd, 0))
    return change if change == change else math.inf


def inspect(
    model: nn.Module,
    batches: Any = None,
    *,
    forward: Forward | None = None,
    mask: str | int | Tensor | None = None,
    loss: Any = None,
    causal: bool | None = None,
    checks: Literal["quick", "all"] | Sequence[str] = "quick",
    rows: int = 4,
    tokens: int = 128,
) -> Report:
    """Find what changes a model's output but should not, by how much, and in which module.

    `batches` are inputs of the model: dicts, tuples or tensors; the first one is examined, cut to
    `rows` rows and `tokens` positions. `forward(model, batch)` calls the model, by default as
    `model(**batch)` or `model(*batch)`. `mask` names the input that marks real tokens (by
    ones, or by their number per row), or is such a mask. `loss(output, batch)` is used only by the
    question `statistics`. `causal` is whether positions must not depend on later ones. `checks` is
    `quick`, `all` or the names of questions.

    The model is examined in eval mode. Afterwards it and the process's state are restored.

    Raises ValueError with a one-sentence message if the model or inputs cannot be examined.
    """
    if batches is None:
        raise ValueError(
            f"normlab.inspect cannot examine a {type(model).__name__} without its inputs: "
            "normlab.inspect(model, batches)"
        )
    names = () if checks in ("quick", "all") else [checks] if isinstance(checks, str) else checks
    kinds = ("module",) if checks == "quick" else ("module", "module_all")
    first = questions("module", names=["forward"])
    asked = [*first, *(each for each in questions(*kinds, names=names) if each not in first)]
    model, given = unwrapped(model), first_batches(batches)
    check(model)
    if min(rows, tokens) < 1:
        raise ValueError(f"rows={rows}, tokens={tokens}: give at least one of each")
    with unchanged(model, given):
        model.eval()
        for longest in (tokens, sys.maxsize):  # then uncut, for models that accept a single length
            example = example_of(
                model, given[0], forward=forward, mask=mask, rows=rows, tokens=longest
            )
            about = Foreign(model, example, given, forward, loss, causal)
            try:
                about.output("alone")
                break
            except ModelFailed as error:
                if longest > tokens:
                    text = f"the model cannot run one row of the first batch: {error}"
                    raise ValueError(text) from error
        findings: dict[str, Finding] = {}
        for each in asked:
            runs = findings.get("forward")
            broken = bool(runs and runs.verdict == "broken")
            if broken and each.name == "statistics":  # they may cause NaN, which has no value
                broken = runs is not None and runs.value is not None
            try:
                found = Finding.none("the forward pass is broken") if broken else each.ask(about)
            except ValueError as error:
                found = Finding.none(str(error))
            findings[each.name] = replace(found, name=each.name)
    return Report(about.title, findings, about.__dict__.get("norms", []))


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside `torch.compile`, DataParallel and DistributedDataParallel."""
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod  # pyright: ignore
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


def check(model: nn.Module) -> None:
    """Raise ValueError for a model that is quantized, sharded, scripted or on the meta device."""
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError("a scripted model has no modules to look into: give the original")
    for name, weight in model.named_parameters():
        if weight.is_meta:
            raise ValueError(f"{name} is on the meta device: load its values first")
        if type(weight).__name__ == "DTensor" or "fsdp" in type(model).__module__:
            raise ValueError(f"{name} is sharded: give the model on one device")
        if weight.dtype not in (*WIDE, torch.float64, torch.complex128):
            raise ValueError(f"{name} is {weight.dtype}: give the unquantized model")
    for name, module in model.named_modules():
        if ".quantized" in type(module).__module__:
            raise ValueError(f"{name} is quantized: give the unquantized model")
