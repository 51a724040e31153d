"""The ledger: every claim with its verdict and the corrected verdicts of its parts.

Each p value is first corrected for its interim analysis. Then the p values of the primary endpoints
of all claims are corrected together (Holm 1979), per study and scale, and per report of timings. An
endpoint counts as p = 1 if it was not measured, or if one of its sides is at the untrained
baseline. An endpoint that was written after its runs were seen tests nothing and is left out. A
decided part with a corrected p of 0.05 or more becomes undecided. An interval that contains an
article's value is not corrected.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from normlab.claims.claim import Claim, Part
from normlab.claims.decision import ERROR, Decision
from normlab.claims.endpoint import Basis, Endpoint, Judgement
from normlab.claims.evidence import EvidenceStore, Place
from normlab.claims.study_endpoints import Gap, Reported
from normlab.claims.verdict import DECIDED, PARTS, Reason, Verdict, combined_verdict
from normlab.errors import UserError
from normlab.metrics.significance import holm

NOT_SURVIVED = Reason("not_survived")
VERDICTS = {
    "supported": "every part that is decided is supported",
    "contradicted": "every part that is decided is contradicted, or shows no difference",
    "mixed": "some parts are supported and others are not",
    "undecided": "measured, but no part is decided",
    "not measured": "no evidence counts yet",
}
"""The verdicts of claims, and what each verdict means for the parts."""


@dataclass(frozen=True)
class JudgedPart:
    """The corrected result of an endpoint of a part. Only primary endpoints have `p_holm`.

    `number` is the position of the part in its claim, from 1.
    """

    claim: int
    number: int
    part: Part
    endpoint: Endpoint
    judgement: Judgement
    verdict: Verdict
    reason: Reason | str = ""
    p_holm: float | None = None

    @property
    def decision(self) -> Decision:
        """Return the decision before it is corrected for other endpoints."""
        return self.judgement.decision

    @property
    def basis(self) -> Basis:
        return self.judgement.basis

    @property
    def question(self) -> str:
        return self.endpoint.question(self.part.assertion)

    @property
    def grade(self) -> str:
        """Return the grade with its setting, such as `C: Multi30k, 2+2 layers`, or ""."""
        basis = self.basis
        if basis.grade is None or self.verdict == "not measured":
            return ""
        return ": ".join(filter(None, (basis.grade, basis.setting.text())))


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with a primary outcome for each part, and all secondary outcomes."""

    claim: Claim
    primary: tuple[JudgedPart, ...]
    secondary: tuple[JudgedPart, ...]

    @property
    def verdict(self) -> str:
        return combined_verdict([each.verdict for each in self.primary])

    @property
    def grades(self) -> str:
        """Return the grades of the decided parts, with their settings."""
        grades = {each.grade for each in self.primary if each.verdict in DECIDED}
        return "; ".join(sorted(grades - {""}))

    @property
    def counts(self) -> str:
        """The number of parts not in the verdict, such as `1 part open, 2 not measured`."""
        numbers = Counter(each.verdict for each in self.primary)
        texts: list[str] = []
        for name in PARTS:
            in_verdict = name in DECIDED and self.verdict != "mixed"
            if (number := numbers[name]) and name != self.verdict and not in_verdict:
                parts = "" if texts else " part" if number == 1 else " parts"
                texts.append(f"{number}{parts} {'open' if name == 'undecided' else name}")
        return ", ".join(texts)


def ledger(claims: Sequence[Claim], runs: EvidenceStore) -> list[JudgedClaim]:
    """Judge claims. Pass all claims, because the parts decided by one study are corrected together.

    Raises `UserError` with the claim and the part, for example if a run is on both sides.
    """
    primary = [
        [_judged(claim, n, part.endpoint, runs) for n, part in enumerate(claim.parts, 1)]
        for claim in claims
    ]
    families: defaultdict[Place | None, list[float]] = defaultdict(list)
    for each in chain.from_iterable(primary):
        decision = each.decision
        if each.endpoint.family is not None and not decision.by_seen_runs:
            families[each.endpoint.family].append(_p(decision))
    return [
        JudgedClaim(
            claim,
            tuple(_corrected(each, families[each.endpoint.family]) for each in outcomes),
            tuple(
                _corrected(_judged(claim, number, each, runs))
                for number, part in enumerate(claim.parts, 1)
                for each in part.secondary
            ),
        )
        for claim, outcomes in zip(claims, primary, strict=True)
    ]


def _p(decision: Decision) -> float:
    return 1.0 if decision.p is None else decision.p.at_look


def _judged(claim: Claim, number: int, endpoint: Endpoint, runs: EvidenceStore) -> JudgedPart:
    part = claim.parts[number - 1]
    try:
        judgement = endpoint.judge(runs, part.assertion)
    except UserError as error:
        raise UserError(f"{claim.path}: part {part.name}: {error}") from None
    decision = judgement.decision
    return JudgedPart(
        claim.id, number, part, endpoint, judgement, decision.verdict, decision.reason
    )


def _corrected(outcome: JudgedPart, family: Sequence[float] = ()) -> JudgedPart:
    """Correct an outcome for the `family` of p values that contains its own, if there is one."""
    decision, p_holm = outcome.decision, None
    if family and (p := decision.p) is not None:
        p_holm = holm(family)[family.index(p.at_look)]
        if p.direction is not None:
            rest = list(family)
            rest.remove(p.at_look)
            if holm([p.direction, *rest])[0] >= ERROR:
                decision = replace(decision, reason=decision.unshown)
    holds = isinstance(outcome.endpoint, Gap | Reported) and decision.verdict == "supported"
    verdict, reason = decision.verdict, decision.reason
    if verdict in DECIDED and p_holm is not None and p_holm >= ERROR and not holds:
        verdict, reason = "undecided", NOT_SURVIVED
    judgement = replace(outcome.judgement, decision=decision)
    if verdict in DECIDED:  # there is nothing more to measure
        judgement = replace(judgement, to_measure=None)
    return replace(outcome, p_holm=p_holm, judgement=judgement, verdict=verdict, reason=reason)
