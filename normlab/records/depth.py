"""Decides the order in which the places of a model are shown: the way of a token through it.

A place is a site or a layer by its short name: `encoder.embedding`, `encoder.0.self`,
`encoder.final`, `decoder.1`, `output`. The order is read off the names: the encoder before the
decoder, then embedding, layers by number, final; in a layer self, cross, feed-forward. Other names
come after those of their stack, in the order given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_STACKS = ("encoder", "decoder")
_LAST = "output"
_IN_LAYER = ("self", "cross", "ffn", "ffn_inner")


def in_depth_order(places: Iterable[str]) -> list[str]:
    """Sort the names of places by depth."""
    return sorted(places, key=_depth)


def stack(place: str) -> str:
    """Return the stack of a place, `encoder` or `decoder`; `output` ends the decoder."""
    first = place.split(".")[0]
    return "decoder" if first == _LAST else first


def by_place(figures: Mapping[str, float], name: str) -> dict[str, float]:
    """Return the figure `name` of each place, in the order of depth.

    `figures` are those of a record or a row, whose places follow the name: with `name`
    `stability/tid/mean`, the figure of `encoder.final` is at `stability/tid/mean/encoder.final`.
    """
    found = {
        key.removeprefix(name + "/"): value
        for key, value in figures.items()
        if key.startswith(name + "/")
    }
    return {place: found[place] for place in in_depth_order(found)}


def _depth(place: str) -> tuple[int, int, int, int]:
    parts = place.split(".")
    outer = _rank(stack(place), _STACKS)
    if place == _LAST:
        return outer, 3, 0, 0
    inside = parts[1] if len(parts) > 1 else ""
    if inside.isdecimal():
        return outer, 1, int(inside), _rank(".".join(parts[2:]), ("", *_IN_LAYER))
    group = {"embedding": 0, "final": 2}.get(inside, 4)
    return outer, group, 0, 0


def _rank(name: str, known: tuple[str, ...]) -> int:
    return known.index(name) if name in known else len(known)
