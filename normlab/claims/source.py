"""The source that decides a part of a claim, and the unit of its number."""

from typing import Literal

from msgspec import Struct

Unit = Literal["value", "difference", "interaction", "factor", "spread", "time", "seeds"]
"""The meaning of a number: a value, a difference, a difference of differences, a factor, a factor
of standard deviations, a share of time, or a count of seeds.
"""


class EvidenceSource(Struct, frozen=True, omit_defaults=True):
    """The source that decides a part: runs (STUDY/SCALE), timings, a check, or publications.

    `only` has the names of the check's findings that count. If it is empty, all count. `chinese` is
    what the publications show, in Chinese.
    """

    kind: Literal["runs", "timing", "check", "sources"]
    study: str = ""
    check: str = ""
    only: tuple[str, ...] = ()
    chinese: str = ""
