"""What decides a part of a claim, and in which unit its number is."""

from typing import Literal

from msgspec import Struct

Unit = Literal["value", "difference", "interaction", "factor", "spread", "time saved", "seeds"]
"""What a number is: a value, a difference, a difference of differences, a factor, a factor of
standard deviations, the share of time saved, a count of seeds."""


class EvidenceSource(Struct, frozen=True, omit_defaults=True):
    """What decides a part: runs of a study (STUDY/SCALE), timings, a check, or published sources.

    `only` has the names of the check's findings that count; all of them if it is empty. `chinese`
    says in Chinese what published sources show.
    """

    kind: Literal["runs", "timing", "check", "sources"]
    study: str = ""
    check: str = ""
    only: tuple[str, ...] = ()
    chinese: str = ""
