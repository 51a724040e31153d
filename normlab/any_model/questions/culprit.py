"""Finds the module at fault by putting modules' original outputs back."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from normlab.any_model.batches.outputs import Outputs, Overlap, tensors
from normlab.any_model.questions.examination import BLIND, LEAK, Examination, PassPair
from normlab.any_model.tracing.calls import Call, inside, slow_path
from normlab.any_model.tracing.float64 import float64_operations
from normlab.any_model.tracing.norm_modules import is_norm
from normlab.any_model.tracing.scripted import class_name, hooked
from normlab.errors import UserError
from normlab.findings.relative_change import relative_change

AGREE = 1e-11  # largest relative change between tensors that agree, in float64
ROUNDS, TRIES = 4, 6  # limits: modules to name, and suspects to try for each
Cause = Literal["padding", "other rows", "later tokens", "random numbers"]
"""What an output should not depend on."""
Calls = dict[tuple[str, int], Call]
"""Calls by module name and how often the module was called before."""


def locate(
    examination: Examination, comparison: PassPair, output: str, cause: Cause
) -> tuple[str | None, str]:
    """Return the path of the module that changes an output, and a sentence about it.

    The path is "" for the model itself, and None if no module explains the change; `cause` is
    what the output should not depend on, such as `padding`.

    The suspects are the innermost modules whose inputs agree and whose outputs differ. That alone
    proves nothing: the output of a relative-position table depends on the length, as it should. So
    suspects are named only if the model's output changes at most half as much once their outputs,
    and those of the same modules in other layers, are replaced by the base's values.
    """
    try:
        with nullcontext() if examination.blind else float64_operations():
            return _locate(examination, comparison, output, cause)
    except UserError:  # the model cannot be run with replaced outputs, or not in float64
        return None, "no single module explains it"


def _locate(
    examination: Examination, comparison: PassPair, output: str, cause: Cause
) -> tuple[str | None, str]:
    (variant, base, overlap, _), run = comparison, examination.runner
    agree, limit = (BLIND, BLIND) if examination.blind else (AGREE, LEAK)

    def output_change(outputs: Outputs) -> float:
        return relative_change(*overlap.nearest(outputs[output], y[output]))

    def without(names: set[str]) -> float:
        """Return how much the output still changes if these modules return the base's outputs."""
        return output_change(run(variant, slow_path(), _keeping(run.model, before, names, overlap)))

    calls, y = run.record(base)
    before = {(call.name, call.number): call for call in calls}
    replaced: set[str] = set()
    places: list[tuple[str, str]] = []
    remaining = total = 0.0
    for number in range(ROUNDS):
        calls, outputs = run.record(variant, _keeping(run.model, before, replaced, overlap))
        remaining = output_change(outputs)
        total = total or remaining
        after = {(call.name, call.number): call for call in calls}
        suspects = _suspects(before, after, overlap, agree) if remaining > limit else []
        tries = _tries(suspects, before, replaced, without, limit)
        # A leak may enter at several modules in a row: then fixing the first alone changes little.
        if not tries or (number + 1 == ROUNDS and min(tries).remaining > remaining / 2):
            break
        remaining, _, call = min(tries)
        replaced |= _alike(call, before)
        places.append(_described(call, before, after, overlap, cause, agree))
        if remaining <= limit:
            break
    if not places or remaining > total / 2:
        return None, "no single module explains it"
    path, text = places[0]
    more = f"; also {', '.join(path for path, _ in places[1:])}" * (len(places) > 1)
    part = "; this explains only part of the change" * (remaining > limit)
    return path, f"{path or 'the model itself'}: {text}{more}{part}"


class Try(NamedTuple):
    """A suspect, and the change that remains once it and its copies in other layers are replaced.

    If two suspects explain the change equally well, the one tried first (lower `number`) counts.
    """

    remaining: float
    number: int
    suspect: Call


def _tries(
    suspects: Sequence[Call],
    calls: Calls,
    replaced: set[str],
    without: Callable[[set[str]], float],
    limit: float,
) -> list[Try]:
    """Return the output's change `without` each suspect, up to the first that explains it."""
    tries: list[Try] = []
    for call in suspects[:TRIES]:
        with suppress(UserError):
            remaining = without(replaced | _alike(call, calls))
            tries.append(Try(remaining, len(tries), call))
            if remaining <= limit:
                break
    return tries


def _alike(call: Call, calls: Calls) -> set[str]:
    """Return the called modules of this class whose paths differ from its path only in numbers."""

    def kind(call: Call) -> tuple[str, str]:
        return re.sub(r"\d+", "*", call.name), class_name(call.module)

    return {other.name for other in calls.values() if kind(other) == kind(call)}


def _suspects(before: Calls, after: Calls, overlap: Overlap, agree: float) -> list[Call]:
    """Return the innermost calls whose inputs agree and whose outputs differ."""
    suspects = [
        call
        for key, call in after.items()
        if key in before
        and _agree(before[key].inputs, call.inputs, overlap, agree)
        and not _agree(before[key].output, call.output, overlap, agree)
    ]
    return [
        call for call in suspects if not any(inside(other.name, call.name) for other in suspects)
    ]


def _agree(former: Any, latter: Any, overlap: Overlap, limit: float) -> bool:
    """Return whether all tensors in two nested values agree where they overlap."""
    before, after = [*tensors(former)], [*tensors(latter)]
    try:
        pairs = [overlap.nearest(y, y0) for y, y0 in zip(after, before, strict=True)]
    except ValueError:  # different numbers of tensors or axes
        return False
    return all(
        relative_change(y, y0) <= limit if y0.is_floating_point() else torch.equal(y, y0)
        for y, y0 in pairs
    )


@contextmanager
def _keeping(
    model: nn.Module, former: Calls, names: Collection[str], overlap: Overlap
) -> Iterator[None]:
    """Replace the outputs of the named modules with the outputs of the `former` calls."""
    counts: Counter[str] = Counter()

    def keep(name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
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

    replaced = {name: module for name, module in model.named_modules() if name in names}
    with hooked(replaced, None, keep):
        yield


def _described(
    call: Call, before: Calls, after: Calls, overlap: Overlap, cause: Cause, agree: float
) -> tuple[str, str]:
    """Return a suspect's path, and a description of it."""
    name = class_name(call.module)
    alike = len(_alike(call, before))
    more = f" (and {alike - 1} like it)" * (alike > 1)
    for key, inner in after.items():
        if not inside(inner.name, call.name) or key not in before:
            continue
        if not _agree(before[key].inputs, inner.inputs, overlap, agree):
            if any(x.is_floating_point() for x in tensors(inner.inputs)):
                return call.name, f"{name}, in its own forward, before `{inner.name}`{more}"
            return inner.name, f"{class_name(inner.module)}, gets different indices from {name}"
    return call.name, f"{name}, {_how(call.module, cause)}{more}"


def _how(module: nn.Module, cause: Cause) -> str:
    """Say how `cause`, which should not matter, gets into the module's output."""
    if is_norm(module):
        return (
            f"pools over {'the batch' if cause == 'other rows' else 'position'}, {cause} included"
        )
    name = class_name(module).lower()
    if "conv" in name:
        size = "x".join(map(str, getattr(module, "kernel_size", ())))
        return f"a convolution{f' of size {size}' * bool(size)} that reaches into {cause}"
    if "drop" in name or cause == "random numbers":
        return "draws random numbers"
    how = f"attends to {cause}" if "att" in name else f"mixes in {cause}"
    first = getattr(module, "batch_first", True) or cause != "other rows"
    return how if first else f"{how}, as it is not batch_first (if rows are on axis 1, set rows=1)"
