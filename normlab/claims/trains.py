"""The endpoint `trains`: how many seeds of a setting train, compared with a reference."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import field

from normlab.claims.asked import StudyEndpoint, train_count, train_text
from normlab.claims.endpoint import Chosen, Side, keys
from normlab.claims.judge import Decision, Judgement, against, alone, of_decision, sequential, stuck
from normlab.claims.runs import Runs, Where
from normlab.claims.sample import Sample


class Trains(StudyEndpoint, frozen=True, kw_only=True):
    """A side, and the side that it is held against, by the counts of seeds that train.

    trains:
      study: translation
      scale: cpu
      score: test/bleu                  held against the floor that the run knows
      side: {norm: none}
      reference: {norm: ln}             optional where the part says trains
      where: {placement: pre}           optional
      over: [batching]                  optional: a seed trains where all its runs do

    Seeds are counted; a seed that diverged, or ended at the floor, did not train.
    """

    kind: ClassVar[str] = "trains"
    says: ClassVar[tuple[str, ...]] = ("trains", "fails")

    side: Side
    reference: Chosen = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a side against itself."""
        if self.side == self.reference:
            raise ValueError("reference: is the same as side; name another setting")

    @property
    def sides(self) -> list[Where]:
        """Return the side that trains or not, and its reference if it has one."""
        return [self.side, *([self.reference] if self.reference else [])]

    def question(self, says: str) -> str:
        other = f", against {keys(self.reference)}" if self.reference else ""
        side = f"{keys(self.side)}{other}"
        return f"how many seeds train with {side}, by {self.scores[0]}{self.within('in each')}"

    def judge(self, runs: Runs, says: str) -> Judgement:
        sides = self.sides
        asked = self.asked(runs, *sides)
        if (unanswered := asked.without_answer(self._shown)) is not None:
            return unanswered
        sample, seeds = asked.sample, asked.last_look
        if self.reference and not self._count(sample, self.reference, seeds):
            floor = asked.floor(keys(self.reference), seeds) or "no seed of the reference trains"
            return asked.finding(stuck(floor, found=train_text(sample, self.scores, seeds)))
        fails = says in ("fails", "difference")

        def look(chosen: Sequence[int], share: float) -> Decision:
            counts = [(self._count(sample, side, chosen), len(chosen)) for side in sides]
            if not self.reference:
                return alone(counts[0], fails=fails, error=share)
            return against(counts[0], counts[1], fails=fails, error=share)

        at, decision = sequential(sample.seeds, look)
        used = sample.seeds[: at.seeds]
        found = train_text(sample, self.scores, used)
        return asked.finding(of_decision(decision, at, found=found), used)

    def _count(self, sample: Sample, side: Where, seeds: Sequence[int]) -> int:
        return train_count(sample, keys(side), self.scores, seeds)

    def _shown(self, sample: Sample) -> str:
        """Put runs into words that decide nothing."""
        return train_text(sample, self.scores, sample.seeds)
