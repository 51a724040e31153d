"""Compares the axes that a norm's name suggests with the axes that it pools over."""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from torch import nn

from normlab.any_model.tracing.axis_roles import BATCH, FEATURE, POSITION
from normlab.norms.axes import AXES, axes_in_words
from normlab.norms.base import Norm

_SAYS: Sequence[tuple[str, str, frozenset[str], frozenset[str]]] = (
    # name pattern; what it suggests; axes: it pools at least one of these, and none of those
    (r"batch_?norm|^bn_?\d*$", "pooling each feature over the batch", BATCH, FEATURE),
    (r"instance_?norm", "pooling each feature over positions", POSITION, BATCH | FEATURE),
    (r"group_?norm|^gn_?\d*$", "pooling groups of features per row", FEATURE | POSITION, BATCH),
    (r"(layer|rms)_?norm|^ln(_\w+)?$", "pooling a token's features", FEATURE, BATCH | POSITION),
)


class Suggestion(NamedTuple):
    """A name that wrongly suggests what a norm does: the name, and the suggestion in words."""

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
) -> Suggestion | None:
    """Return what a norm's class (`kind`) or attribute suggests, if it pools over other axes.

    `present` are the axes of its input that have several entries. Of a norm of normlab, the class
    says what it pools over.
    """
    if isinstance(module, Norm):
        words = f"pooling over {axes_in_words(module.pools)}"
        names = [(kind, words, module.pools, {*AXES} - module.pools)]
    else:
        names = [
            (name, words, some, none)
            for name in (kind, attribute)
            for pattern, words, some, none in _SAYS
            if re.search(pattern, name.lower()) and "frozen" not in kind.lower()
        ]
    for name, words, some, none in names:
        if not has_positions and "feature" in pools:
            none = none - POSITION  # a layer norm over whole images, as in torch's documentation
        if none.intersection(pools) or (
            some.intersection(present) and not some.intersection(pools)
        ):
            return Suggestion(name, words)
    return None
