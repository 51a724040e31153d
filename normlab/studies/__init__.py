"""Studies: grids of runs that fill the comparison tables of articles, tuned, run and published.

A study is a file of `configs/study`: the rows to compare (the first is the baseline), the `grid`
that is varied for every row, the scores to show, the article's own values, and by scale the size,
the data and the seeds.
"""

from normlab.studies.load import load_study, tuning_of, unchosen
from normlab.studies.study import (
    ANALYSES,
    SMOKE,
    STABILITY,
    TRIALS,
    Axis,
    Planned,
    Scale,
    Study,
    Tuning,
    rate_name,
)

__all__ = [
    "ANALYSES",
    "SMOKE",
    "STABILITY",
    "TRIALS",
    "Axis",
    "Planned",
    "Scale",
    "Study",
    "Tuning",
    "load_study",
    "rate_name",
    "tuning_of",
    "unchosen",
]
