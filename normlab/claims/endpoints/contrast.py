"""The endpoint `contrast`: two settings by the paired difference of a score, seed by seed.

contrast:
  study: translation
  scale: cpu
  score: [test/bleu, test_2017/bleu]     one, or a list that is averaged within a seed
  better: {norm: ln}                     the claimed direction
  worse: {norm: bn}
  where: {task: multi30k}                optional: shared by both sides
  over: [placement]                      optional: nuisances, averaged within a seed
  in: {batching: bucket}                 optional, with than_in: an interaction,
  than_in: {batching: random}            the difference is larger `in` than `than_in`
  margin: 0.5                            in the unit of the score
  measure: true                          optional: a probe's figure, of which less is better
  ratio: true                            optional: the margin is a factor, such as 1.25
  minus: test/loss                       optional: subtracted from each score, run by run
"""

from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.node import Node, Where


@dataclass(frozen=True)
class Contrast:
    """Two sides of which the first is to be better by more than the margin."""

    kind: ClassVar[str] = "contrast"
    says: ClassVar[tuple[str, ...]] = ("difference", "equality")

    study: str
    scale: str
    scores: tuple[str, ...]
    better: Where
    worse: Where
    where: Where
    over: tuple[str, ...]
    inside: Where
    outside: Where
    margin: float
    measure: bool
    ratio: bool
    minus: str | None

    @classmethod
    def read(cls, node: Node) -> "Contrast":
        """Read it; see the module for the keys."""
        own = node.node(cls.kind)
        study, scale = own.study()
        found = cls(
            study=study,
            scale=scale,
            scores=own.texts("score"),
            better=own.where("better", required=True),
            worse=own.where("worse", required=True),
            where=own.where("where"),
            over=own.texts("over", required=False),
            inside=own.where("in"),
            outside=own.where("than_in"),
            margin=own.number("margin"),
            measure=own.flag("measure"),
            ratio=own.flag("ratio"),
            minus=own.optional_text("minus"),
        )
        own.finish()
        found._agree(own)
        return found

    def _agree(self, node: Node) -> None:
        """Refuse keys that do not go together."""
        if self.better == self.worse:
            raise node.wrong("worse", "is the same side as better; name two different ones")
        if bool(self.inside) != bool(self.outside):
            raise node.wrong("in", "an interaction needs both in and than_in; give both, or none")
        if self.inside and self.inside == self.outside:
            raise node.wrong("than_in", "is the same as in; name two different ones")
        fewest = 1 if self.ratio else 0
        if self.margin < fewest:
            raise node.wrong("margin", f"expected at least {fewest}, found {self.margin:g}")
        sides = ({**self.inside}, {**self.better}, {**self.worse})
        for key in (*self.over, *self.where):
            if any(key in side for side in sides):
                raise node.wrong(key, "is what is compared; take it out of where and over")
        for key in self.over:
            if key in self.where:
                raise node.wrong("over", f"{key} is fixed by where; take it out of one of them")

    @property
    def question(self) -> str:
        """Say in a line what is asked."""
        return ""
