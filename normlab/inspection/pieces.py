"""Data for the live pieces of the interactive page: examples, and which axes norms pool."""

from collections.abc import Iterable
from typing import Any

from normlab.inspection.checks.marks import MARKS
from normlab.inspection.checks.outlier import SENTENCE, WIDTHS
from normlab.inspection.checks.padding import SENTENCES
from normlab.inspection.pooling import DOCUMENT
from normlab.norms.axes import AXES
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.rms import RMSNorm

GROUPS = 2
"""The groups of group norms here: the default of eight does not fit the examples' few features."""
_SENTENCES = (
    ((0.3, -1.2, 2.0, 0.5),),
    ((1.1, 0.4, -0.6, 2.2), (-0.8, 1.5, 0.9, -0.3), (2.4, -0.5, 0.2, 1.0)),
    (
        *((0.6, 0.9, -1.4, 0.1), (-1.6, 0.3, 1.2, 0.8), (0.2, -0.7, 0.5, -2.1)),
        *((1.8, 1.3, -0.2, 0.4), (-0.4, 2.0, 0.7, 1.6)),
    ),
)
"""Four features for each word of article 1's batch; made up, as the article gives none."""


def pieces() -> dict[str, Any]:
    """Return each piece's data by name, as plain values for JSON."""
    every = ("bn", "ln", "in", "gn", "rms", "bn_position", "bn_sample", "seqn", "gn_sample")
    return {
        "tensor": {"x": DOCUMENT, "norms": pools((*every, "global", "none"), len(DOCUMENT[0][0]))},
        "words": {
            "x": SENTENCE,
            "widths": WIDTHS,
            "norms": pools(("none", "ln", "rms", "bn"), len(SENTENCE[0])),
        },
        "padding": {
            "words": [sentence.split() for sentence in SENTENCES],
            "x": _SENTENCES,
            "norms": pools(("bn", "bn_position", "ln", "rms"), len(_SENTENCES[0][0])),
        },
        "marks": {"x": MARKS, "norms": pools(("ln", "bn", "rms", "none"), len(MARKS[0]))},
    }


def pools(names: Iterable[str], width: int) -> dict[str, dict[str, Any]]:
    """Return, for each norm, what a script needs to compute it: its axes, groups, mean and eps."""
    return {name: _pool(of_width(name, width)) for name in names}


def of_width(name: str, width: int, **values: Any) -> Norm:
    """Return a new norm as on the page, in double precision; `values` override settings."""
    groups = {"groups": GROUPS} if name in ("gn", "gn_sample") else {}
    return make_norm(name, width, **groups, **values).double()


def _pool(norm: Norm) -> dict[str, Any]:
    return {
        "pools": [axis for axis in AXES if axis in norm.pools],
        "groups": getattr(norm, "groups", 1),
        "center": not isinstance(norm, RMSNorm),
        "eps": float(getattr(norm, "eps", 0.0)) if norm.pools else 0.0,
    }
