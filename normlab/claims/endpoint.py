"""Base classes of endpoints: what an endpoint asks, and how it is judged.

An endpoint selects runs, which form a `Sample` (`sample.py`), and the sample's values lead to a
`Decision` (`decision.py`). The kinds of endpoints are in `study_endpoints.py` and
`other_endpoints.py`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from normlab.claims.decision import (
    FEWEST,
    LOOKS,
    NOT_ALL_TRAIN,
    Analysis,
    Decision,
    corrected_for_look,
    sequential,
    stuck,
    undecided_by_seen,
)
from normlab.claims.evidence import EvidenceStore, PlannedRuns
from normlab.claims.measurement import Measurement, measurement
from normlab.claims.sample import Count, Sample, Selection, sample_of
from normlab.claims.side import Side, names_of
from normlab.claims.source import EvidenceSource, Unit
from normlab.claims.verdict import DECIDED, Reason, Verdict
from normlab.claims.where import Where, where_text
from normlab.config.conversion import Text
from normlab.data.toy import VERSION, version_of
from normlab.errors import UserError
from normlab.records.record import RunRecord
from normlab.records.store import lookup

Chosen = dict[str, str | int | float | bool | None]
Family = tuple[str, str]
"""The key of endpoints that are corrected together: a study and scale, or `BENCH` and a report."""


@dataclass(frozen=True)
class Scope:
    """What a decision holds for: the data or machine, and the sizes of the models.

    `layers` has the numbers of layers of the smallest and the largest model, such as `2+2`, or only
    one if all models have the same size.
    """

    data: str = ""
    layers: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the scope in words, such as `Multi30k de-en, 2+2 layers`."""
        sizes = " to ".join(self.layers)
        return f"{self.data}, {sizes} layers" if sizes else self.data


@dataclass(frozen=True)
class Basis:
    """The evidence of a decision: `n` seeds or rounds, and the files or addresses of its `records`.

    `repeats` says whether `n` counts seeds or rounds. `grade` is the strength of the evidence, and
    `scope` describes its data and models. If no interval was judged, `trained` has each side's
    label, its number of seeds that train, and its number of seeds. `excluded` has the reasons why
    runs do not count.
    """

    n: int = 0
    repeats: str = "seed"
    grade: str | None = None
    scope: Scope = Scope()
    trained: tuple[tuple[str, int, int], ...] = ()
    excluded: tuple[str, ...] = ()
    records: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A decision and its evidence.

    `unseen` is the number of seeds that count and were not seen before the endpoint was written, or
    None if more seeds would not help.
    """

    decision: Decision
    basis: Basis = Basis()
    unseen: int | None = None


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of endpoints. A primary one decides its part, a secondary one is only shown.

    `assertions` lists the assertions of parts that this kind can decide, or is empty if it can
    decide all.
    `corrected_verdicts` lists the verdicts that must survive the correction for other endpoints.
    """

    assertions: ClassVar[tuple[str, ...]] = ()
    corrected_verdicts: ClassVar[tuple[Verdict, ...]] = DECIDED

    @property
    def family(self) -> Family | None:
        """The family whose p values are corrected together, or None for no correction."""
        return None

    @property
    def source(self) -> EvidenceSource:
        """The source that decides the part, as the ledger's file has it."""
        raise NotImplementedError

    @property
    def unit(self) -> Unit:
        """The meaning of the number that is found, such as a difference."""
        return "value"

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of the measured scores, except the score to subtract."""
        return ()

    @property
    def subtracted(self) -> str:
        """The name of the score to subtract, or "" if there is none."""
        return ""

    @property
    def limits(self) -> tuple[float, float] | None:
        """The bounds between which the shown number is no difference, or None if there are none."""
        return None

    @property
    def named_sides(self) -> list[Side]:
        """The sides with their names, in the order in which the statement mentions them."""
        return []

    def question(self, assertion: str) -> str:
        """Return the question that the endpoint asks, given the part's `assertion`."""
        raise NotImplementedError

    def check_plan(self, evidence: EvidenceStore) -> None:
        """Raise UserError if a study that decides the part plans no runs for a side."""

    def judge(self, evidence: EvidenceStore, assertion: str) -> Judgement:
        """Judge the available evidence before any correction, given the part's `assertion`."""
        raise NotImplementedError

    def to_measure(self, judgement: Judgement, evidence: EvidenceStore) -> Measurement | None:
        """Return the command that measures more for an open part, or None if there is none."""
        return None


class StudyEndpoint(Endpoint, frozen=True, kw_only=True):
    """Base class of endpoints decided by a study's runs at one scale, at the planned analyses.

    In addition to its own keys, every kind has:

      study: translation
      scale: small
      score: [test/bleu, test_2017/bleu]     one score, or a list that is averaged per seed
      minus: test/loss                       optional: a score to subtract within each run
      where: {task: multi30k}                optional: the selection shared by all sides
      over: [placement]                      optional: nuisance keys, averaged per seed
      seen_seeds: 5                          optional: seeds 1 to 5 were seen before it was written

    If some runs were seen before an endpoint was written, five or more later seeds decide it. Until
    these have been run, it is undecided, and the value of the seen runs is only shown.
    """

    study: Text
    scale: Text
    score: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    minus: str | None = None
    where: Chosen = field(default_factory=dict)
    over: tuple[Text, ...] = ()
    seen_seeds: Annotated[int, Meta(ge=0)] = 0

    @property
    def family(self) -> Family | None:
        return self.study, self.scale

    @property
    def source(self) -> EvidenceSource:
        return EvidenceSource("runs", study=f"{self.study}/{self.scale}")

    @property
    def scores(self) -> tuple[str, ...]:
        return (self.score,) if isinstance(self.score, str) else self.score

    @property
    def subtracted(self) -> str:
        return self.minus or ""

    @property
    def sides(self) -> Sequence[Where]:
        """The settings to compare, or the single setting to measure."""
        raise NotImplementedError

    @property
    def named_sides(self) -> list[Side]:
        names = zip(self.sides, names_of(self.sides, self.study), strict=True)
        return [Side(where_text(side), name) for side, name in names]

    @property
    def labels(self) -> Mapping[str, Where]:
        return {where_text(side): side for side in self.sides}

    @property
    def selection(self) -> Selection:
        """The selection of the runs to sample."""
        return Selection(
            self.study, self.scale, self.labels, self.scores, self.minus, self.where, self.over
        )

    @property
    def value_name(self) -> str:
        """The name of the value to judge, made from the scores and the score to subtract."""
        name = " and ".join(self.scores)
        name = f"the mean of {name}" if len(self.scores) > 1 else name
        return f"{name} minus {self.minus}" if self.minus else name

    def conditions(self, nuisances: str = "mean over", data: Where | None = None) -> str:
        """Return the end of a question, in brackets: selection, nuisance keys and new seeds.

        `nuisances` are the words before the nuisance keys. `data` is named before the selection.
        """
        parts = [
            where_text({**(data or {}), **self.where}),
            f"{nuisances} {', '.join(self.over)}" if self.over else "",
            f"only seeds after {self.seen_seeds}" if self.seen_seeds else "",
        ]
        text = "; ".join(filter(None, parts))
        return f" ({text})" if text else ""

    def unseen(self, sample: Sample) -> tuple[int, ...]:
        """Return the seeds that were not seen before the endpoint was written."""
        return tuple(seed for seed in sample.seeds if seed > self.seen_seeds)

    def why_unusable(self, runs: Sequence[RunRecord]) -> str | None:
        """Return why these runs cannot answer the question, or None if they can."""
        return None

    def why_untrained(self, sample: Sample, label: str, seeds: Sequence[int]) -> Reason | None:
        """Return why a side does not clearly beat the untrained baseline, with its names."""
        if (reason := sample.why_untrained(label, seeds)) is None:
            return None
        side = next(each for each in self.named_sides if each.label == label)
        chinese, english = side.full_name
        return Reason(reason.name, {**reason.values, "chinese": chinese, "english": english})

    def values(self, sample: Sample, seeds: Sequence[int]) -> dict[int, float]:
        """Return the value to judge for each seed: by default, the value of the first side."""
        values = sample.values(next(iter(sample.cells)))
        return {seed: values[seed] for seed in seeds}

    def decide_values(self, values: Sequence[float], look: Analysis, assertion: str) -> Decision:
        """Decide by the values of seeds, all of which train."""
        raise NotImplementedError

    def decide_counts(
        self, trained: Sequence[Count], look: Analysis, assertion: str
    ) -> Decision | None:
        """Decide by how many seeds of each side train, because a seed diverged.

        Returns None if this kind of endpoint cannot be decided by counts.
        """
        return None

    def behind(self, sample: Sample, seeds: Sequence[int]) -> Mapping[str, float]:
        """Return the values behind a decision, keyed by the label of the side."""
        return {}

    def is_opposite(self, sample: Sample) -> bool:
        """Return whether the first side minus the second is negative if the claim is true."""
        return False

    def decide_at(
        self, sample: Sample, seeds: Sequence[int], look: Analysis, assertion: str
    ) -> Decision:
        """Decide at a planned analysis by the values or, if a seed diverged, by the counts."""
        trained = sample.train_counts(seeds)
        counts = list(trained.values())
        if not all(run.finished for run in sample.runs(seeds)):
            decision = self.decide_counts(counts, look, assertion)
            if decision is None:
                return stuck(NOT_ALL_TRAIN, trained)
            return corrected_for_look(replace(decision, trained=trained), look)
        values = self.values(sample, seeds)
        not_finite = [str(seed) for seed in seeds if not math.isfinite(values[seed])]
        reasons = (self.why_untrained(sample, side, seeds) for side in sample.cells)
        untrained = [reason for reason in reasons if reason]
        if untrained:
            return stuck(untrained[0])
        if not_finite:
            return stuck(Reason("not_finite", {"seeds": ", ".join(not_finite)}))
        if any(train < n for train, n in counts):
            return stuck(NOT_ALL_TRAIN, trained)
        decision = self.decide_values([values[seed] for seed in seeds], look, assertion)
        behind, opposite = self.behind(sample, seeds), self.is_opposite(sample)
        return replace(decision, behind=behind, opposite=opposite)

    def check_plan(self, evidence: EvidenceStore) -> None:
        plan = evidence.plan(self.study, self.scale)
        for side in self.sides:
            if not plan.may_choose(where := {**self.where, **side}):
                raise UserError(
                    f"{self.study} at scale={self.scale} plans no run with {where_text(where)}; "
                    f"planned: {'; '.join(plan.names)}"
                )

    def judge(self, evidence: EvidenceStore, assertion: str) -> Judgement:
        plan = evidence.plan(self.study, self.scale)
        sample = sample_of(evidence, self.selection)
        unseen = self.unseen(sample)
        only_seen = bool(sample.seeds) and len(unseen) < FEWEST and self.seen_seeds > 0
        seeds = sample.seeds if only_seen else unseen
        decision, judged = self._decide(replace(sample, seeds=seeds), plan, assertion)
        records_at = evidence.records.get((self.study, self.scale), {})
        counts = sample.train_counts(judged) if judged and decision.estimate is None else {}
        basis = Basis(
            n=len(judged),
            grade=plan.scale.grade,
            scope=self._scope(plan, sample.all_runs),
            trained=tuple((side, *count) for side, count in counts.items()),
            excluded=sample.excluded,
            records=tuple(records_at[run.run_id].folder for run in sample.runs(judged)),
        )
        more = None if decision.stuck or sample.problem else len(unseen)
        if only_seen and decision.verdict != "not measured":
            decision = undecided_by_seen(decision)
        return Judgement(decision, basis, more)

    def _decide(
        self, sample: Sample, plan: PlannedRuns, assertion: str
    ) -> tuple[Decision, Sequence[int]]:
        """Return the decision on a sample, and the seeds that it rests on."""
        n = len(sample.seeds)
        if reason := self.why_unusable(sample.all_runs) or sample.problem:
            return Decision("not measured", reason=reason), sample.seeds
        if plan.scale.pilot:
            return Decision("not measured", reason=Reason("pilot")), sample.seeds
        if n < FEWEST:
            reason = Reason("no_run_counts" if sample.excluded else "no_runs")
            if n:
                reason = Reason("too_few_seeds", {"n": str(n), "needed": str(FEWEST)})
            return Decision("not measured", reason=reason), sample.seeds
        look, decision = sequential(
            sample.seeds,
            lambda seeds, look: self.decide_at(sample, seeds, look, assertion),
            lambda seeds: sample.train_counts(seeds).values(),
        )
        return decision, sample.seeds[: look.seeds]

    def _scope(self, plan: PlannedRuns, runs: Sequence[RunRecord]) -> Scope:
        """Return the data of the runs, and the sizes of the smallest and the largest model."""
        layers = {size for run in runs if (size := _layers(run))}
        sizes = ["+".join(map(str, size)) for size in sorted(layers, key=lambda s: (sum(s), s))]
        data = plan.scale.data_name_of({str(lookup(run, "task")) for run in runs})
        return Scope(data, tuple(dict.fromkeys([*sizes[:1], *sizes[-1:]])))

    def to_measure(self, judgement: Judgement, evidence: EvidenceStore) -> Measurement | None:
        """Return the command for the seeds of the next analysis, or None after the last one.

        It runs only the rows and points that the endpoint compares.
        """
        if (have := judgement.unseen) is None:
            return None
        target = next((look.seeds for look in LOOKS if look.seeds > have), None)
        if target is None:
            return None
        plan = evidence.plan(self.study, self.scale)
        seeds = target - have
        # Use new seeds, because completing a partly run seed could pair runs from two machines, and
        # publishing a seed again is refused.
        records = evidence.records.get((self.study, self.scale), {})
        known_seeds = {record.seed for record, _ in records.values()}
        after = count(self.seen_seeds + 1)
        new = list(islice((seed for seed in after if seed not in known_seeds), seeds))
        versions = (version_of(record.data) for record, _ in records.values())
        again = any(version is not None and version < VERSION for version in versions)
        part = plan.smallest_part([{**self.where, **side} for side in self.sides])
        if again:  # new runs use a different text than the published ones, so all are run again
            new = sorted({*known_seeds, *new})
            part = plan.smallest_part([{}])
        return measurement(plan, evidence, part, new, again=again)


def _layers(run: RunRecord) -> tuple[int, ...]:
    """Return the numbers of layers of a run's model, such as (2, 2), (12,) or ()."""
    model = run.config.get("model") or {}
    sizes = [model.get(key) for key in ("encoder_layers", "decoder_layers", "num_layers")]
    return tuple(size for size in sizes if size is not None)
