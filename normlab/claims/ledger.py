"""The ledger: every claim with its parts, their verdicts after correction, and the claim's own.

Within a study at a scale the p values of the primary endpoints of all claims are corrected together
(Holm 1979), each first multiplied for its look. Endpoints that were not measured, or are at the
floor, count as p = 1. A decided part whose corrected p is 0.05 or more is undecided. An interval
that holds a document's value is no rejection, and is not corrected.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from normlab.claims.claim import Claim, Part
from normlab.claims.endpoint import Endpoint, StudyEndpoint
from normlab.claims.judge import DECIDED, ERROR, Judgement, Verdict
from normlab.claims.level import Document
from normlab.claims.runs import Runs
from normlab.metrics.spread import holm
from normlab.records.record import plain

FORMAT = "normlab.claims/2"
NOT_SURVIVED = "does not survive the correction for the study's other endpoints"
VERDICTS = ("supported", "contradicted", "mixed", "undecided", "not measured")
"""The verdicts of claims; those of parts are of `judge.Verdict`."""


@dataclass(frozen=True)
class Outcome:
    """What an endpoint of a part comes to after correction; only a primary one has `p_holm`."""

    claim: int
    part: Part
    endpoint: Endpoint
    finding: Judgement
    verdict: Verdict
    reason: str = ""
    p_holm: float | None = None
    compared: int = 0

    @property
    def name(self) -> str:
        """Return the part's name in words."""
        return self.part.name.replace("_", " ")

    @property
    def question(self) -> str:
        """Return what is measured."""
        return self.endpoint.question(self.part.says)

    @property
    def open(self) -> bool:
        """Tell whether more seeds may decide it."""
        return self.verdict not in DECIDED and not self.finding.stuck

    @property
    def grade(self) -> str:
        """Return the grade with its setting, such as `C: Multi30k, 2+2 layers`; none if open."""
        found = self.finding
        if found.grade is None or self.verdict == "not measured":
            return ""
        return ": ".join(part for part in (found.grade, found.setting) if part)


@dataclass(frozen=True)
class Entry:
    """A claim, the outcome that decides each part, and the secondary ones."""

    claim: Claim
    primary: tuple[Outcome, ...]
    secondary: tuple[Outcome, ...]

    @property
    def verdict(self) -> str:
        """Return the verdict of the claim."""
        return verdict([each.verdict for each in self.primary])

    @property
    def grades(self) -> str:
        """Return the grades of the parts that are decided, with their settings."""
        said = {each.grade for each in self.primary if each.verdict in DECIDED}
        return "; ".join(sorted(said - {""}))

    @property
    def by_parts(self) -> str:
        """Name the parts by their verdicts, such as `worse: supported; size: undecided`."""
        names: dict[str, list[str]] = {}
        for each in self.primary:
            names.setdefault(each.verdict, []).append(each.name)
        return "; ".join(f"{', '.join(found)}: {of}" for of, found in names.items())


def verdict(parts: Sequence[Verdict]) -> str:
    """Weigh the verdicts of a claim's parts.

    All supported is `supported`; all contradicted or without a difference is `contradicted`.
    Otherwise the claim is `mixed` if a part is decided, and `undecided` if one was measured.
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
    """Decide all claims; give all of them, since those of one study are corrected together.

    `ValueError` names claim and part if one run would be on both sides.
    """
    parts = [(claim, part) for claim in claims for part in claim.parts]
    found = {
        (claim.id, part.name): _judged(claim, part, part.endpoint, runs) for claim, part in parts
    }
    families: defaultdict[tuple[str, str] | None, list[float]] = defaultdict(list)
    for claim, part in parts:
        p = found[claim.id, part.name].p_look
        families[part.endpoint.family].append(1.0 if p is None else p)
    families[None] = []  # nothing to correct within
    return [
        Entry(
            claim,
            tuple(
                _outcome(
                    claim,
                    part,
                    part.endpoint,
                    found[claim.id, part.name],
                    families[part.endpoint.family],
                )
                for part in claim.parts
            ),
            tuple(
                _outcome(claim, part, each, _judged(claim, part, each, runs))
                for part in claim.parts
                for each in part.secondary
            ),
        )
        for claim in claims
    ]


def _judged(claim: Claim, part: Part, endpoint: Endpoint, runs: Runs) -> Judgement:
    try:
        return endpoint.judge(runs, part.says)
    except ValueError as error:
        raise ValueError(f"{claim.path}: part {part.name}: {error}") from None


def _outcome(
    claim: Claim,
    part: Part,
    endpoint: Endpoint,
    finding: Judgement,
    family: Sequence[float] = (),
) -> Outcome:
    """Correct a finding within the p values of a `family`, if any, of which its own is one."""
    p = None
    if family and finding.p_look is not None:
        p = holm(family)[family.index(finding.p_look)]
    if family and finding.p_direction is not None:
        rest = list(family)
        rest.remove(1.0 if finding.p_look is None else finding.p_look)
        if holm([finding.p_direction, *rest])[0] >= ERROR:
            finding = replace(finding, reason=finding.unshown)
    holds = isinstance(endpoint, Document) and finding.verdict == "supported"
    lost = finding.verdict in DECIDED and p is not None and p >= ERROR and not holds
    found: Verdict = "undecided" if lost else finding.verdict
    reason = NOT_SURVIVED if lost else finding.reason
    if found in DECIDED:  # nothing more has to be measured
        finding = replace(finding, command=None, cost=None, untuned=())
    return Outcome(claim.id, part, endpoint, finding, found, reason, p, len(family))


def standings(claims: Sequence[Claim], runs: Runs, study: str, scale: str) -> list[Outcome]:
    """Return the parts that a study decides at a scale, corrected together as in the ledger."""

    def own(endpoint: Endpoint) -> bool:
        return isinstance(endpoint, StudyEndpoint) and endpoint.family == (study, scale)

    asked = [claim for claim in claims if any(own(part.endpoint) for part in claim.parts)]
    entries = ledger(asked, runs)
    return [each for entry in entries for each in entry.primary if own(each.endpoint)]


def to_plain(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the ledger as plain values."""
    names = ("id", "name", "documents", "statement", "figure", "literature", "see")
    claims = [
        {
            **{name: getattr(entry.claim, name) for name in names},
            "verdict": entry.verdict,
            "grades": entry.grades,
            "parts": [_plain_part(entry, each) for each in entry.primary],
        }
        for entry in entries
    ]
    return plain({"format": FORMAT, "claims": claims})


def _plain_part(entry: Entry, primary: Outcome) -> dict[str, Any]:
    part = primary.part
    secondary = [each for each in entry.secondary if each.part is part]
    return {
        **{name: getattr(part, name) for name in ("name", "statement", "note", "says")},
        "verdict": primary.verdict,
        "primary": _plain_outcome(primary),
        "secondary": [_plain_outcome(each) for each in secondary],
    }


def _plain_outcome(outcome: Outcome) -> dict[str, Any]:
    names = ("question", "verdict", "reason", "p_holm")
    own = {name: getattr(outcome, name) for name in names}
    return {**asdict(outcome.finding), "kind": outcome.endpoint.kind, **own}
