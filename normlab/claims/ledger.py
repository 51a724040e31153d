"""The ledger: every claim with its parts, their verdicts after correction, and the claim's own.

Within a study at a scale the p values of the primary endpoints, of all claims, are corrected
together (Holm 1979), each first multiplied for its look. Endpoints that were not measured, or that
are at the floor, count as p = 1. A decided part whose p is then 0.05 or more is undecided. That the
interval of what was measured holds a document's figure is no rejection, and is not corrected.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from msgspec import structs

from normlab.claims.asked import StudyEndpoint
from normlab.claims.claim import Claim, Part
from normlab.claims.contrast import Contrast
from normlab.claims.endpoint import Endpoint
from normlab.claims.judge import DECIDED, ERROR, LOOKS, Judgement, Verdict, constant
from normlab.claims.level import Document
from normlab.claims.runs import Runs
from normlab.metrics.spread import holm, smallest_difference, t_interval
from normlab.records.canonical import plain

FORMAT = "normlab.claims/2"
NOT_SURVIVED = "does not survive the correction for the study's other endpoints"
ClaimVerdict = str
VERDICTS = ("supported", "contradicted", "mixed", "undecided", "not measured")


@dataclass(frozen=True)
class Outcome:
    """An endpoint and what it found; `p_holm` is corrected, of a primary endpoint alone."""

    endpoint: Endpoint
    question: str
    finding: Judgement
    verdict: Verdict
    reason: str = ""
    p_holm: float | None = None
    compared: int = 0

    @property
    def grade(self) -> str:
        """Return the grade with its setting, such as `C: Multi30k, 2+2 layers`; none if open."""
        found = self.finding
        if found.grade is None or self.verdict == "not measured":
            return ""
        return ": ".join(part for part in (found.grade, found.setting) if part)


@dataclass(frozen=True)
class Decided:
    """A part, its primary outcome, which alone counts, and what stands beside it."""

    part: Part
    primary: Outcome
    secondary: tuple[Outcome, ...]

    @property
    def verdict(self) -> Verdict:
        """Return what the primary endpoint comes to."""
        return self.primary.verdict


@dataclass(frozen=True)
class Entry:
    """A claim and its parts."""

    claim: Claim
    parts: tuple[Decided, ...]

    @property
    def verdict(self) -> ClaimVerdict:
        """Return what the parts come to."""
        return verdict([each.verdict for each in self.parts])

    @property
    def grades(self) -> str:
        """Return the grades of the parts that are decided, with their settings."""
        said = [part.primary.grade for part in self.parts if part.verdict in DECIDED]
        return "; ".join(sorted({each for each in said if each}))

    @property
    def by_parts(self) -> str:
        """Name the parts by their verdicts, such as `worse supported; size undecided`."""
        names: dict[str, list[str]] = {}
        for each in self.parts:
            names.setdefault(each.verdict, []).append(each.part.name.replace("_", " "))
        return "; ".join(f"{', '.join(found)}: {of}" for of, found in names.items())


def verdict(parts: Sequence[Verdict]) -> ClaimVerdict:
    """Weigh the verdicts of a claim's parts.

    All supported is `supported`; all contradicted or without a difference is `contradicted`. Where
    a part is decided and not all are so alike, the claim is `mixed`. Without any it is `undecided`
    where one was measured.
    """
    found = set(parts)
    if found == {"supported"}:
        return "supported"
    if found and found <= {"contradicted", "no difference"}:
        return "contradicted"
    if found & set(DECIDED):
        return "mixed"
    return "undecided" if "undecided" in found else "not measured"


def ledger(claims: Sequence[Claim], runs: Runs) -> list[Entry]:
    """Decide all claims; those of one study are corrected together, so give all of them.

    Raises `ValueError` naming claim and part where one run would be on both sides.
    """
    primaries = {
        (claim.id, part.name): _judged(claim, part, part.endpoint, runs)
        for claim in claims
        for part in claim.parts
    }
    parts = {(claim.id, part.name): part for claim in claims for part in claim.parts}
    outcomes = _corrected(parts, primaries)
    return [
        Entry(
            claim,
            tuple(
                Decided(
                    part,
                    outcomes[claim.id, part.name],
                    tuple(
                        _uncorrected(each, part, _judged(claim, part, each, runs))
                        for each in part.secondary
                    ),
                )
                for part in claim.parts
            ),
        )
        for claim in claims
    ]


def _judged(claim: Claim, part: Part, endpoint: Endpoint, runs: Runs) -> Judgement:
    try:
        return endpoint.judge(runs, part.says)
    except ValueError as error:
        raise ValueError(f"configs/claim/{claim.name}.yaml: part {part.name}: {error}") from None


def _corrected(
    parts: dict[tuple[int, str], Part], findings: dict[tuple[int, str], Judgement]
) -> dict[tuple[int, str], Outcome]:
    """Correct the p values of each study at each scale together."""
    families: dict[tuple[str, str], list[tuple[int, str]]] = {}
    outcomes: dict[tuple[int, str], Outcome] = {}
    for key, part in parts.items():
        if part.endpoint.family is None:
            outcomes[key] = _uncorrected(part.endpoint, part, findings[key])
        else:
            families.setdefault(part.endpoint.family, []).append(key)
    for members in families.values():
        found = [findings[key].p_look for key in members]
        tested = any(p is not None for p in found)
        corrected = holm([1.0 if p is None else p for p in found]) if tested else found
        for key, p, own in zip(members, corrected, found, strict=True):
            holm_p = None if own is None else p
            finding = _direction(findings[key], [findings[other].p_look for other in members])
            outcomes[key] = _survived(parts[key], finding, holm_p, len(members))
    return outcomes


def _direction(finding: Judgement, others: Sequence[float | None]) -> Judgement:
    """Take back that a direction is shown where its p does not survive the study's correction.

    `others` are the p values of all primary endpoints of the study, its own among them.
    """
    if finding.p_direction is None:
        return finding
    rest = [1.0 if p is None else p for p in others]
    rest.remove(finding.p_look if finding.p_look is not None else 1.0)
    if holm([finding.p_direction, *rest])[0] < ERROR:
        return finding
    return replace(finding, reason=finding.unshown)


def _survived(part: Part, finding: Judgement, p: float | None, compared: int) -> Outcome:
    endpoint, asked = part.endpoint, part.endpoint.question(part.says)
    holds = isinstance(endpoint, Document) and finding.verdict == "supported"
    lost = finding.verdict in DECIDED and p is not None and p >= ERROR and not holds
    found: Verdict = "undecided" if lost else finding.verdict
    reason = NOT_SURVIVED if lost else finding.reason
    return Outcome(endpoint, asked, _told(finding, found), found, reason, p, compared)


def _uncorrected(endpoint: Endpoint, part: Part, finding: Judgement) -> Outcome:
    asked = endpoint.question(part.says)
    return Outcome(
        endpoint, asked, _told(finding, finding.verdict), finding.verdict, finding.reason
    )


def _told(finding: Judgement, verdict: Verdict) -> Judgement:
    """Leave out what would measure more where the verdict, as corrected, is a decision."""
    done = verdict in DECIDED
    return replace(finding, command=None, cost=None, untuned=()) if done else finding


def to_plain(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the ledger as plain values."""
    return {
        "format": FORMAT,
        "claims": [
            {
                "id": entry.claim.id,
                "name": entry.claim.name,
                "documents": list(entry.claim.documents),
                "statement": entry.claim.statement,
                "figure": entry.claim.figure,
                "literature": entry.claim.literature,
                "see": list(entry.claim.see),
                "verdict": entry.verdict,
                "grades": entry.grades,
                "parts": [_plain_part(each) for each in entry.parts],
            }
            for entry in entries
        ],
    }


def _plain_part(decided: Decided) -> dict[str, Any]:
    part = decided.part
    return {
        "name": part.name,
        "statement": part.statement,
        "note": part.note,
        "says": part.says,
        "verdict": decided.verdict,
        "primary": _plain_outcome(decided.primary),
        "secondary": [_plain_outcome(each) for each in decided.secondary],
    }


def _plain_outcome(outcome: Outcome) -> dict[str, Any]:
    return plain(
        {
            **asdict(outcome.finding),
            "kind": outcome.endpoint.kind,
            "question": outcome.question,
            "verdict": outcome.verdict,
            "reason": outcome.reason,
            "p_holm": outcome.p_holm,
        }
    )


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
        values = list(structs.replace(endpoint, scale=scale).differences(runs).values())
        if len(values) >= 2 and not constant(values):
            found = t_interval(values)
            by_look = {
                look.seeds: smallest_difference(replace(found, n=look.seeds), error=look.share)
                for look in LOOKS
            }
            return Visible(by_look, len(values), scale)
    return None
