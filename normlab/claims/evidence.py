"""Decides what a piece of evidence is, and how pieces become the verdict of a claim.

A piece is measured when it supports, contradicts, or had what it needs and leaves the claim open.
Others (too few seeds, no records) say what is missing and never move a verdict.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from normlab.metrics.spread import Interval, t_interval

Standing = Literal[
    "supports",
    "contradicts",
    "undecided",
    "too few seeds",
    "no records",
    "not comparable",
    "not computed",
]
Verdict = Literal["supported", "contradicted", "partly", "not measured"]
VERDICTS: tuple[Verdict, ...] = ("supported", "contradicted", "partly", "not measured")
FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Evidence:
    """One piece: what was asked, what was found, over how many seeds, and where that stands.

    `task`, `scale` and `setting` say of which runs a study's piece is, `records` are their folders,
    relative to the checkout where they lie in it. A timing has rounds for seeds, the machine for
    its setting and the file that it stands in for its record.
    """

    kind: Literal["unit", "study", "timing", "note"]
    question: str
    finding: str
    standing: Standing
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    n: int = 0
    task: str | None = None
    scale: str | None = None
    setting: str = ""
    records: tuple[str, ...] = ()

    @property
    def repeats(self) -> str:
        """Name what `n` counts."""
        return "round" if self.kind == "timing" else "seed"

    @property
    def measured(self) -> bool:
        """Whether there was enough to decide by, decided or not."""
        return self.standing in ("supports", "contradicts", "undecided")


def verdict(pieces: Iterable[Evidence]) -> Verdict:
    """Weigh the measured pieces.

    `supported` takes all of them. Where none supports, one that contradicts is enough for
    `contradicted`; support beside anything else is `partly`.
    """
    standings = {piece.standing for piece in pieces if piece.measured}
    if standings == {"supports"}:
        return "supported"
    if "supports" in standings:
        return "partly"
    return "contradicted" if "contradicts" in standings else "not measured"


def strength(pieces: Sequence[Evidence]) -> str:
    """Say in a line what a verdict rests on, and what it could not rest on."""
    parts = [
        f"{name}: {_counted(group)}" for name, group in _by_source(pieces).items() if any(group)
    ]
    lacking = Counter(piece.standing for piece in pieces if not piece.measured)
    parts += [f"{standing}: {count}" for standing, count in sorted(lacking.items())]
    return "; ".join(parts)


def _by_source(pieces: Sequence[Evidence]) -> dict[str, list[Evidence]]:
    names = {"unit": "computed", "note": "by published sources"}
    groups: dict[str, list[Evidence]] = {}
    for piece in pieces:
        if piece.measured:
            place = f"{piece.task}, scale={piece.scale or 'none'}"
            if piece.kind == "timing":
                place = f"timed on {piece.setting}"
            groups.setdefault(names.get(piece.kind, place), []).append(piece)
    return groups


def _counted(group: Sequence[Evidence]) -> str:
    counts = Counter(piece.standing for piece in group)
    order: tuple[Standing, ...] = ("supports", "contradicts", "undecided")
    words = {"supports": "for", "contradicts": "against", "undecided": "undecided"}
    said = ", ".join(f"{counts[name]} {words[name]}" for name in order if counts[name])
    seeds = sorted({piece.n for piece in group if piece.n})
    if not seeds:
        return said
    span = "-".join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1])))
    return f"{said} ({span} {group[0].repeats}s)"


def judge(values: Sequence[float], margin: float) -> tuple[Standing, Interval | None]:
    """Place the mean of some values against a margin, by its 95 % t interval.

    Above it supports, below it contradicts. Values that are not finite, such as the steps to a
    target that was never reached, decide where all are infinite alike.
    """
    if len(values) < FEWEST_SEEDS:
        return "too few seeds", None
    if not all(math.isfinite(value) for value in values):
        if len(set(values)) > 1 or math.isnan(values[0]):
            return "undecided", None
        return ("supports" if values[0] > 0 else "contradicts"), None
    found = t_interval(values)
    if found.low > margin:
        return "supports", found
    return ("contradicts" if found.high < margin else "undecided"), found


def figures(*values: float) -> list[str]:
    """Write numbers with as many decimals as the largest needs to show three digits."""
    finite = [abs(value) for value in values if math.isfinite(value) and value]
    decimals = min(6, max(0, 2 - math.floor(math.log10(max(finite))))) if finite else 0
    return [f"{value:.{decimals}f}" if math.isfinite(value) else str(value) for value in values]
