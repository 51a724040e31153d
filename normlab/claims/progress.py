"""The parts that a study at a scale decides: where they stand, and what more seeds would show."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from normlab.claims.claim import Claim
from normlab.claims.decision import DECIDED, constant
from normlab.claims.endpoints.contrast import Contrast
from normlab.claims.endpoints.study import StudyEndpoint
from normlab.claims.ledger import ledger
from normlab.claims.looks import LOOKS
from normlab.claims.runs import Runs
from normlab.metrics.spread import smallest_difference, t_interval


@dataclass(frozen=True)
class Standing:
    """A part whose primary endpoint names a study and scale, and its verdict by the runs so far.

    `reason` says why it is open, `stuck` tells that no seeds can decide it; so many `seeds`
    count for it, None where no seeds would help.
    """

    claim: int
    part: str
    verdict: str
    endpoint: StudyEndpoint
    reason: str = ""
    stuck: bool = False
    seeds: int | None = None

    @property
    def open(self) -> bool:
        """Tell whether more seeds may decide it."""
        return self.verdict not in DECIDED and not self.stuck

    @property
    def name(self) -> str:
        """Name claim and part, such as `2 worse`."""
        return f"{self.claim} {self.part.replace('_', ' ')}"


def standings(claims: Sequence[Claim], runs: Runs, study: str, scale: str) -> list[Standing]:
    """Return the parts that a study decides at a scale, corrected together as in the ledger."""
    place = study, scale
    asked = [
        claim for claim in claims if any(part.endpoint.family == place for part in claim.parts)
    ]
    return [
        Standing(
            entry.claim.id,
            each.part.name,
            each.verdict,
            each.part.endpoint,
            each.primary.reason,
            each.primary.finding.stuck,
            each.primary.finding.seeds,
        )
        for entry in ledger(asked, runs)
        for each in entry.parts
        if isinstance(each.part.endpoint, StudyEndpoint) and each.part.endpoint.family == place
    ]


@dataclass(frozen=True)
class Visible:
    """The smallest difference that seeds would show at 80 % power, by the looks.

    The spread is that of `seeds` seeds at `scale`.
    """

    by_look: dict[int, float]
    seeds: int
    scale: str


def visible(endpoint: object, runs: Runs, scales: Sequence[str]) -> Visible | None:
    """Return what a contrast would show, by the spread of the first scale that has one.

    None where there is none, and for other kinds of endpoints. Of a factor they are logarithms.
    """
    if not isinstance(endpoint, Contrast):
        return None
    for scale in scales:
        values = list(replace(endpoint, scale=scale).differences(runs).values())
        if len(values) >= 2 and not constant(values):
            found = t_interval(values)
            by_look = {
                look.seeds: smallest_difference(replace(found, n=look.seeds), error=look.share)
                for look in LOOKS
            }
            return Visible(by_look, len(values), scale)
    return None
