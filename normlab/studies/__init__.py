"""Studies: grids of runs that reproduce comparison tables of articles, tuned, run and published."""

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
