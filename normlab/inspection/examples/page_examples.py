"""The data of the interactive examples on the web page, and the axes that norms pool over."""

from collections.abc import Iterable
from typing import Any

from normlab.inspection.examples.articles import (
    BATCH_OF_THREE,
    CLASS_MARKS,
    TENSOR,
    WORD_WIDTHS,
    WORDS_WITH_999,
)
from normlab.norms.axes import AXES
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.rms import RMSNorm

GROUPS = 2
"""The number of groups in group norms. The default, eight, does not divide so few features."""
_WORD_FEATURES = (
    ((0.3, -1.2, 2.0, 0.5),),
    ((1.1, 0.4, -0.6, 2.2), (-0.8, 1.5, 0.9, -0.3), (2.4, -0.5, 0.2, 1.0)),
    (
        *((0.6, 0.9, -1.4, 0.1), (-1.6, 0.3, 1.2, 0.8), (0.2, -0.7, 0.5, -2.1)),
        *((1.8, 1.3, -0.2, 0.4), (-0.4, 2.0, 0.7, 1.6)),
    ),
)
"""Four features for each word of article 1's batch, made up because the article gives none."""


def page_examples() -> dict[str, Any]:
    """Return the data of each interactive example, keyed by name, as plain values for JSON."""
    every = ("bn", "ln", "in", "gn", "rms", "bn_position", "bn_sample", "seqn", "gn_sample")
    return {
        "tensor": {
            "x": TENSOR,
            "norms": norms_of_width((*every, "global", "none"), len(TENSOR[0][0])),
        },
        "words": {
            "x": WORDS_WITH_999,
            "widths": WORD_WIDTHS,
            "norms": norms_of_width(("none", "ln", "rms", "bn"), len(WORDS_WITH_999[0])),
        },
        "padding": {
            "words": [sentence.split() for sentence in BATCH_OF_THREE],
            "x": _WORD_FEATURES,
            "norms": norms_of_width(("bn", "bn_position", "ln", "rms"), len(_WORD_FEATURES[0][0])),
        },
        "marks": {
            "x": CLASS_MARKS,
            "norms": norms_of_width(("ln", "bn", "rms", "none"), len(CLASS_MARKS[0])),
        },
    }


def norms_of_width(names: Iterable[str], width: int) -> dict[str, dict[str, Any]]:
    """Return the axes, groups, centering and eps of each norm, from which a script computes it."""
    return {name: _in_json(norm_of_width(name, width)) for name in names}


def norm_of_width(name: str, width: int, **values: Any) -> Norm:
    """Return a new norm as on the page, in float64. `values` override its settings."""
    groups = {"groups": GROUPS} if name in ("gn", "gn_sample") else {}
    return make_norm(name, width, **groups, **values).double()


def _in_json(norm: Norm) -> dict[str, Any]:
    return {
        "pools": [axis for axis in AXES if axis in norm.pools],
        "groups": getattr(norm, "groups", 1),
        "center": not isinstance(norm, RMSNorm),
        "eps": float(getattr(norm, "eps", 0.0)) if norm.pools else 0.0,
    }
