"""Compares the axes that a norm's name suggests with the axes that it pools over."""

from collections.abc import Collection
from typing import NamedTuple

from torch import nn

from normlab.any_model.tracing.axis_roles import POSITION
from normlab.any_model.tracing.class_names import SuggestedPooling, suggested_poolings
from normlab.norms.axes import AXES, axes_in_words
from normlab.norms.base import Norm


class Misnomer(NamedTuple):
    """A name that suggests the wrong axes of a norm, and what it suggests, in words."""

    name: str
    words: str


def misnomer_of(
    module: nn.Module,
    kind: str,
    attribute: str,
    pools: Collection[str],
    present: Collection[str],
    *,
    has_positions: bool,
) -> Misnomer | None:
    """Return the first of a norm's names that suggests the wrong axes, or None.

    Its names are its class (`kind`) and the `attribute` that holds it. `present` are the axes of
    its input that have several entries. A norm of normlab declares what it pools over.
    """
    if isinstance(module, Norm):
        words = f"pooling over {axes_in_words(module.pools)}"
        declared = SuggestedPooling(words, frozenset(module.pools), frozenset(AXES) - module.pools)
        suggestions = [(kind, declared)]
    elif "frozen" in kind.lower():
        return None
    else:
        suggestions = [
            (name, suggested)
            for name in (kind, attribute)
            for suggested in suggested_poolings(name)
        ]
    for name, (words, some, none) in suggestions:
        if not has_positions and "feature" in pools:
            none = none - POSITION  # a layer norm over whole images, as in torch's documentation
        if none.intersection(pools) or (
            some.intersection(present) and not some.intersection(pools)
        ):
            return Misnomer(name, words)
    return None
