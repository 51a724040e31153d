"""Which module makes an output move: compare two passes call by call, and confirm by intervening.

The suspects are the deepest modules whose inputs agree and whose output moves. A table of relative
positions is one too, and rightly so. So a suspect is only named if the end result stops moving once
its output, and that of the modules like it in other layers, has its former values.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from normlab.inspect.foreign.calls import Call, record
from normlab.inspect.foreign.example import Example, Fit, Forward, ModelFailed, run, tensors
from normlab.inspect.foreign.wide import widened
from normlab.inspect.model import movement

AGREE = 1e-11  # in float64
ROUNDS, TRIES = 3, 6
Calls = dict[tuple[str, int], Call]
"""Calls by the module's name and the number of its earlier calls."""
Kind = tuple[str, type]
"""What modules like another share: the path without numbers, and the class."""


@dataclass(frozen=True)
class Place:
    """Where an output begins to move.

    `module` is the module's path, "" for the model itself; `words` what the module is. `alike`
    counts the modules like it; with `further`, the paths of other places at fault. `confirmed` is
    whether the end result stops moving if all of them are kept from moving.
    """

    module: str
    words: str
    alike: int
    further: tuple[str, ...]
    confirmed: bool


@dataclass(frozen=True)
class Pair:
    """Two examples whose outputs should agree, row 0 of `variant` with `base`."""

    model: nn.Module
    base: Example
    variant: Example
    forward: Forward | None
    seen: str  # what the output of a sound model does not depend on: `padding`, `other rows`
    fit: Fit


def locate(pair: Pair, limit: float) -> Place | None:
    """Return where the output begins to move by more than `limit`, or None if nobody moves it."""
    with torch.no_grad(), widened():
        recorded, y = record(pair.model, pair.base, pair.forward)
        base = _numbered(recorded)
        stopped: list[Kind] = []
        places: list[tuple[str, str, int]] = []
        for _ in range(ROUNDS):
            with _kept(pair, base, stopped):
                seen, output = record(pair.model, pair.variant, pair.forward)
            moved = movement(*pair.fit(output, y))
            if moved <= limit:
                break
            found = _numbered(seen)
            best: tuple[float, Call] | None = None
            for call in _suspects(base, found, pair.fit)[:TRIES]:
                left = _left(pair, base, y, [*stopped, _kind(call)])
                if best is None or left < best[0]:
                    best = left, call
                if left <= limit:
                    break
            if best is None or best[0] > moved / 2:
                break
            moved = best[0]
            stopped.append(_kind(best[1]))
            places.append(_described(best[1], base, found, pair))
            if moved <= limit:
                break
    if not places:
        return None
    (module, words, alike), *further = places
    return Place(module, words, alike, tuple(each[0] for each in further), moved <= limit)


def _left(pair: Pair, base: Calls, y: Tensor, kinds: list[Kind]) -> float:
    """Return how far the output still moves if some kinds of modules keep their outputs."""
    try:
        with _kept(pair, base, kinds):
            output = run(pair.model, pair.variant, pair.forward)
        return movement(*pair.fit(output, y))
    except (ModelFailed, ValueError):
        return float("inf")


def _numbered(calls: list[Call]) -> Calls:
    numbered: Calls = {}
    for call in calls:
        count = sum(name == call.name for name, _ in numbered)
        numbered[call.name, count] = call
    return numbered


def _kind(call: Call) -> Kind:
    return re.sub(r"\d+", "*", call.name), type(call.module)


def _suspects(base: Calls, found: Calls, fit: Fit) -> list[Call]:
    """Return the calls whose inputs agree and whose output moves, without what contains another."""
    odd = [
        call
        for key, call in found.items()
        if key in base
        and _agree((base[key].args, base[key].kwargs), (call.args, call.kwargs), fit)
        and not _agree(base[key].output, call.output, fit)
    ]
    return [call for call in odd if not any(_inside(other, call) for other in odd)]


def _inside(call: Call, of: Call) -> bool:
    return call.name != of.name and (not of.name or call.name.startswith(f"{of.name}."))


def _agree(base: Any, found: Any, fit: Fit) -> bool:
    """Return whether all tensors in two nested values agree where both have values."""
    pairs = [[*tensors(base)], [*tensors(found)]]
    if len(pairs[0]) != len(pairs[1]):
        return False
    for a, b in zip(*pairs, strict=True):
        try:
            b, a = fit(b, a)
        except ValueError:
            return False
        if not (movement(b, a) <= AGREE if a.is_floating_point() else torch.equal(a, b)):
            return False
    return True


@contextmanager
def _kept(pair: Pair, base: Calls, kinds: list[Kind]) -> Iterator[None]:
    """Give the outputs of all modules of some kinds the values of the base, where it has any."""
    counts: dict[str, int] = {}

    def keep(name: str, output: Any) -> Any:
        number = counts[name] = counts.get(name, -1) + 1
        if (name, number) not in base:
            return output
        parts, structure = tree_flatten(output)
        former = tree_flatten(base[name, number].output)[0]
        if len(former) != len(parts):
            return output
        kept = [_with(y, y0, pair.fit) for y, y0 in zip(parts, former, strict=True)]
        return tree_unflatten(kept, structure)

    with ExitStack() as hooks:
        for name, module in pair.model.named_modules():
            if (re.sub(r"\d+", "*", name), type(module)) in kinds:
                hook = module.register_forward_hook(
                    lambda _, __, output, name=name: keep(name, output)
                )
                hooks.callback(hook.remove)
        yield


def _with(y: Any, values: Any, fit: Fit) -> Any:
    """Return y with these values, in the part that has their shape."""
    if not isinstance(y, Tensor) or not isinstance(values, Tensor):
        return y
    y = y.clone()
    with suppress(ValueError):
        target, source = fit(y, values)
        target.copy_(source)
    return y


def _described(call: Call, base: Calls, found: Calls, pair: Pair) -> tuple[str, str, int]:
    """Return a suspect's path, words for what it does, and how many modules are like it."""
    alike = {name for (name, _), each in base.items() if _kind(each) == _kind(call)}
    words = describe(call.module, pair.seen)
    for key, inner in found.items():
        if _inside(inner, call) and key in base:
            given, former = ([*tensors((each.args, each.kwargs))] for each in (inner, base[key]))
            if _agree(former, given, pair.fit):
                continue
            name = type(call.module).__name__
            if given and not given[0].is_floating_point():
                words = f"{type(inner.module).__name__}, is given other indices by {name}"
                return inner.name, words, 1
            return call.name, f"{name}, in its own forward before `{inner.name}`", len(alike)
    return call.name, words, len(alike)


def describe(module: nn.Module, seen: str) -> str:
    """Return what a module is, and how what it should not see gets into its output."""
    name = type(module).__name__
    over = "the batch" if seen == "other rows" else "position"
    if "norm" in name.lower():
        return f"{name}, pools over {over}, {seen} included"
    if "conv" in name.lower():
        size = getattr(module, "kernel_size", ())
        width = f" of {'x'.join(map(str, size))}" if size else ""
        return f"{name}, a convolution{width} that reaches {seen}"
    if isinstance(module, nn.RNNBase):
        return f"{name}, runs over {seen}"
    if "attention" in name.lower() or "attn" in name.lower():
        return f"{name}, attends to {seen}"
    return f"{name}, mixes in {seen}"


def sentence(place: Place | None) -> str:
    """Return where an output begins to move, as part of a finding's sentence."""
    if place is None:
        return "no single module explains it"
    more = f" (and {place.alike - 1} like it)" if place.alike > 1 else ""
    text = f"{place.module or 'the model itself'}: {place.words}{more}"
    if place.further:
        text += f"; then {', '.join(place.further)}"
    return text if place.confirmed else f"{text}; it explains only part"
