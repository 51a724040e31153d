"""Which module makes an output move: compare two passes call by call, and confirm by intervening.

The suspects are the innermost modules whose inputs agree and whose output moves. That alone proves
nothing: the output of a relative-position table moves with the length, as it should. So a suspect
is named only if the model's output moves at most half as much once the suspect's output, and that
of the same modules in other layers, is replaced by the values of the base run.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from normlab.inspect.foreign.calls import Call, inside, record
from normlab.inspect.foreign.example import Fit, run, tensors
from normlab.inspect.foreign.subject import LEAK, Foreign, moved
from normlab.inspect.foreign.wide import widened

AGREE = 1e-11  # in float64
ROUNDS, TRIES = 3, 6  # modules that are named at most, and suspects that are tried for each
Calls = dict[tuple[str, int], Call]
"""Calls by module name and how often the module was called before."""
Kind = tuple[str, type]
"""Modules are of one kind if their paths agree except for numbers, and so do their classes."""


def locate(about: Foreign, name: str, base: str, seen: str) -> tuple[str | None, str]:
    """Return the path of the module that moves a variant's output, and a sentence about it.

    The path is "" for the model itself, and None if no module explains the movement; `seen` is what
    the output should not depend on, such as `padding`.
    """
    model, (variant, fit) = about.model, about.variant(name)
    kinds: list[Kind] = []
    places: list[tuple[str, str]] = []
    left = 0.0
    with torch.no_grad(), widened():
        calls, y = record(model, about.variant(base)[0], about.forward)
        former = _numbered(calls)
        for _ in range(ROUNDS):
            with _kept(model, former, kinds, fit):
                calls, output = record(model, variant, about.forward)
            left, found = moved(*fit(output, y)), _numbered(calls)
            tries: list[tuple[float, int, Call]] = []
            for call in _suspects(former, found, fit)[: TRIES if left > LEAK else 0]:
                with suppress(ValueError), _kept(model, former, [*kinds, _kind(call)], fit):
                    again = moved(*fit(run(model, variant, about.forward), y))
                    tries.append((again, len(tries), call))
                    if again <= LEAK:
                        break
            if not tries or (best := min(tries))[0] > left / 2:
                break
            left, _, call = best
            kinds.append(_kind(call))
            places.append(_described(call, former, found, fit, seen))
            if left <= LEAK:
                break
    if not places:
        return None, "no single module explains it"
    path, text = places[0]
    more = f"; also {', '.join(each for each, _ in places[1:])}" * (len(places) > 1)
    part = "; this explains only part of the movement" * (left > LEAK)
    return path, f"{path or 'the model itself'}: {text}{more}{part}"


def _numbered(calls: list[Call]) -> Calls:
    counts: Counter[str] = Counter()
    numbered: Calls = {}
    for call in calls:
        numbered[call.name, counts[call.name]] = call
        counts[call.name] += 1
    return numbered


def _kind(call: Call) -> Kind:
    return re.sub(r"\d+", "*", call.name), type(call.module)


def _suspects(former: Calls, found: Calls, fit: Fit) -> list[Call]:
    """Return the innermost calls whose inputs agree and whose output moves."""
    odd = [
        call
        for key, call in found.items()
        if key in former
        and _agree((former[key].args, former[key].kwargs), (call.args, call.kwargs), fit)
        and not _agree(former[key].output, call.output, fit)
    ]
    return [call for call in odd if not any(inside(other.name, call.name) for other in odd)]


def _agree(former: Any, found: Any, fit: Fit) -> bool:
    """Return whether all tensors in two nested values agree where both have values."""
    before, after = [*tensors(former)], [*tensors(found)]
    try:
        pairs = [fit(y, y0) for y, y0 in zip(after, before, strict=True)]
    except ValueError:  # different numbers of tensors or axes
        return False
    return all(
        moved(y, y0) <= AGREE if y0.is_floating_point() else torch.equal(y, y0) for y, y0 in pairs
    )


@contextmanager
def _kept(model: nn.Module, former: Calls, kinds: Collection[Kind], fit: Fit) -> Iterator[None]:
    """Replace the outputs of all modules of some kinds by those of the `former` calls."""
    counts: Counter[str] = Counter()

    def keep(name: str, module: nn.Module, args: Any, output: Any) -> Any:
        call = former.get((name, counts[name]))
        counts[name] += 1
        parts, structure = tree_flatten(output)
        values = tree_flatten(call.output)[0] if call else []
        for number, (y, value) in enumerate(zip(parts, values, strict=False)):
            if isinstance(y, Tensor) and isinstance(value, Tensor):
                parts[number] = y.clone()
                with suppress(ValueError):
                    target, source = fit(parts[number], value)
                    target.copy_(source)
        return tree_unflatten(parts, structure)

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if (re.sub(r"\d+", "*", name), type(module)) in kinds:
                hooks.callback(module.register_forward_hook(partial(keep, name)).remove)
        yield


def _described(call: Call, former: Calls, found: Calls, fit: Fit, seen: str) -> tuple[str, str]:
    """Return a suspect's path, and a description of it."""
    name = type(call.module).__name__
    alike = len({each.name for each in former.values() if _kind(each) == _kind(call)})
    more = f" (and {alike - 1} like it)" * (alike > 1)
    for key, inner in found.items():
        if not inside(inner.name, call.name) or key not in former:
            continue
        given, before = ((each.args, each.kwargs) for each in (inner, former[key]))
        if not _agree(before, given, fit):
            if any(x.is_floating_point() for x in tensors(given)):
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
