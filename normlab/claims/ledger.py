"""The ledger: every claim with its verdict, and the corrected verdicts on its parts.

Each p value is first corrected for its interim analysis. Then the p values of the primary endpoints
of all claims are corrected together (Holm 1979), per study and scale, and per report of timings. An
endpoint counts as p = 1 if it was not measured, or if one of its sides is at the untrained
baseline. An endpoint that was written after its runs were seen tests nothing and is left out. A
decided part with a corrected p of 0.05 or more becomes undecided. A part that is supported because
an interval contains an article's value is not corrected.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

from normlab.claims.claim import Claim, Part
from normlab.claims.decision import ERROR, NOT_SURVIVED, Decision
from normlab.claims.endpoint import Basis, Endpoint, Family, Judgement, Measurement
from normlab.claims.evidence import EvidenceStore
from normlab.claims.verdict import DECIDED, PART_VERDICTS, Reason, Verdict, combined_verdict
from normlab.errors import UserError
from normlab.metrics.significance import holm


@dataclass(frozen=True)
class JudgedPart:
    """The result of an endpoint of a part, corrected for other endpoints.

    `number` is the position of the part in its claim, from 1. Only primary endpoints have a
    corrected p value, `p_holm`. `to_measure` is the command that measures more if the part is open
    (see `with_measurements`).
    """

    claim: int
    number: int
    part: Part
    endpoint: Endpoint
    judgement: Judgement
    verdict: Verdict
    reason: Reason | str = ""
    p_holm: float | None = None
    to_measure: Measurement | None = None

    @property
    def decision(self) -> Decision:
        """The decision before correction for other endpoints."""
        return self.judgement.decision

    @property
    def basis(self) -> Basis:
        return self.judgement.basis

    @property
    def question(self) -> str:
        return self.endpoint.question(self.part.assertion)

    @property
    def grade(self) -> str:
        """The grade with its scope, such as `C: Multi30k, 2+2 layers`, or "" if there is none."""
        basis = self.basis
        if basis.grade is None or self.verdict == "not measured":
            return ""
        return ": ".join(filter(None, (basis.grade, basis.scope.text())))


@dataclass(frozen=True)
class JudgedClaim:
    """A claim whose parts are judged by their primary and their secondary endpoints."""

    claim: Claim
    primary: tuple[JudgedPart, ...]
    secondary: tuple[JudgedPart, ...]

    @property
    def verdict(self) -> str:
        return combined_verdict([part.verdict for part in self.primary])

    @property
    def grades(self) -> str:
        """The grades of the decided parts, with their scopes."""
        grades = {part.grade for part in self.primary if part.verdict in DECIDED}
        return "; ".join(sorted(grades - {""}))

    @property
    def counts(self) -> str:
        """How many parts the verdict leaves out, such as `1 part open, 2 not measured`."""
        numbers = Counter(part.verdict for part in self.primary)
        texts: list[str] = []
        for name in PART_VERDICTS:
            in_verdict = name in DECIDED and self.verdict != "mixed"
            if (number := numbers[name]) and name != self.verdict and not in_verdict:
                parts = "" if texts else " part" if number == 1 else " parts"
                texts.append(f"{number}{parts} {'open' if name == 'undecided' else name}")
        return ", ".join(texts)


def check_plans(claims: Sequence[Claim], evidence: EvidenceStore) -> None:
    """Check that the studies that decide claims plan runs for each side. This needs no runs.

    Otherwise raises a `UserError` that names the claim and the part.
    """
    for claim in claims:
        for part in claim.parts:
            with _errors_of_part(claim, part):
                for endpoint in part.endpoints:
                    endpoint.check_plan(evidence)


def ledger(claims: Sequence[Claim], evidence: EvidenceStore) -> list[JudgedClaim]:
    """Judge claims. Pass all claims, because the parts decided by one study are corrected together.

    Raises `UserError` with the claim and the part, for example if a run is on both sides.
    """
    primary = [
        [_judged(claim, n, part.endpoint, evidence) for n, part in enumerate(claim.parts, 1)]
        for claim in claims
    ]
    families: defaultdict[Family | None, list[JudgedPart]] = defaultdict(list)
    for judged_part in chain.from_iterable(primary):
        family = judged_part.endpoint.family
        if family is not None and not judged_part.decision.by_seen_runs:
            families[family].append(judged_part)
    return [
        JudgedClaim(
            claim,
            tuple(
                _corrected(judged_part, families[judged_part.endpoint.family])
                for judged_part in judged_parts
            ),
            tuple(
                _corrected(_judged(claim, number, endpoint, evidence), family=())
                for number, part in enumerate(claim.parts, 1)
                for endpoint in part.secondary
            ),
        )
        for claim, judged_parts in zip(claims, primary, strict=True)
    ]


def with_measurements(claims: Sequence[JudgedClaim], evidence: EvidenceStore) -> list[JudgedClaim]:
    """Return judged claims whose open parts have a command that measures more, if there is one."""

    def measurable(part: JudgedPart) -> JudgedPart:
        if part.verdict in DECIDED:
            return part
        return replace(part, to_measure=part.endpoint.to_measure(part.judgement, evidence))

    return [
        replace(
            claim,
            primary=tuple(map(measurable, claim.primary)),
            secondary=tuple(map(measurable, claim.secondary)),
        )
        for claim in claims
    ]


def _judged(claim: Claim, number: int, endpoint: Endpoint, evidence: EvidenceStore) -> JudgedPart:
    part = claim.parts[number - 1]
    with _errors_of_part(claim, part):
        judgement = endpoint.judge(evidence, part.assertion)
    decision = judgement.decision
    return JudgedPart(
        claim.id, number, part, endpoint, judgement, decision.verdict, decision.reason
    )


@contextmanager
def _errors_of_part(claim: Claim, part: Part) -> Iterator[None]:
    """Begin the message of a `UserError` with the claim's file and the part."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{claim.path}: part {part.name}: {error}") from None


def _p_at_look(judged_part: JudgedPart) -> float:
    p = judged_part.decision.p
    return 1.0 if p is None else p.at_look


def _corrected(judged_part: JudgedPart, family: Sequence[JudgedPart]) -> JudgedPart:
    """Correct a judged part for the primary endpoints of its `family`.

    An empty `family` means no correction. A decided part that does not survive becomes undecided.
    """
    decision, p_holm = judged_part.decision, None
    others = [_p_at_look(other) for other in family if other is not judged_part]
    if family and (p := decision.p) is not None:
        p_holm = holm([p.at_look, *others])[0]
        if p.direction is not None and holm([p.direction, *others])[0] >= ERROR:
            decision = replace(decision, reason=decision.unshown)
    verdict, reason = decision.verdict, decision.reason
    corrected = verdict in judged_part.endpoint.corrected_verdicts
    if corrected and p_holm is not None and p_holm >= ERROR:
        verdict, reason = "undecided", NOT_SURVIVED
    judgement = replace(judged_part.judgement, decision=decision)
    return replace(judged_part, p_holm=p_holm, judgement=judgement, verdict=verdict, reason=reason)
