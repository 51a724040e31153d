"""Studies: the grid of runs that fills one comparison table of the documents, read from data.

A study is a file of `configs/study` and nothing else: what is compared (`rows`, the first is what
the others are compared with), what is varied for every row (`grid`), which scores are shown, what
the document says, and by scale how large, on which data, with which seeds. An axis of the grid is
a list of values of its key, or gives each value the overrides it stands for. A scale may leave out
rows and values: `rows` and `grid` of its own name those it keeps. Its `rates` are the values that
tuning chose for a row, or for a row at some points; its `tuning` says how they are found, or names
the study by whose grid. No torch, no Hydra.
"""

from normlab.studies.load import load_study, tuning_of, unchosen
from normlab.studies.study import (
    GRADES,
    SMOKE,
    STABILITY,
    TRIALS,
    Axis,
    Planned,
    Scale,
    Study,
    rate_name,
)

__all__ = [
    "GRADES",
    "SMOKE",
    "STABILITY",
    "TRIALS",
    "Axis",
    "Planned",
    "Scale",
    "Study",
    "load_study",
    "rate_name",
    "tuning_of",
    "unchosen",
]
