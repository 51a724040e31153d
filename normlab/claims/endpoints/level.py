"""The endpoint `level`: a figure of one setting against a bound.

level:
  study: translation
  scale: cpu
  score: test/bleu
  of: {norm: bn}
  where: {placement: pre}           optional
  over: [batching]                  optional: nuisances, averaged within a seed
  above: 0.5                        or below
  margin: 0                         optional
  minus: test/loss                  optional: subtracted from each score, run by run
"""

from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.node import Node, Where


@dataclass(frozen=True)
class Level:
    """One setting, of which a figure is to lie above or below a bound."""

    kind: ClassVar[str] = "level"
    says: ClassVar[tuple[str, ...]] = ("difference", "equality", "figure")

    study: str
    scale: str
    scores: tuple[str, ...]
    of: Where
    where: Where
    over: tuple[str, ...]
    bound: float
    above: bool
    margin: float
    minus: str | None

    @classmethod
    def read(cls, node: Node) -> "Level":
        """Read it; see the module for the keys."""
        own = node.node(cls.kind)
        study, scale = own.study()
        sides = [key for key in ("above", "below") if own.has(key)]
        if len(sides) != 1:
            raise own.wrong("", "needs exactly one of above and below")
        found = cls(
            study=study,
            scale=scale,
            scores=own.texts("score"),
            of=own.where("of", required=True),
            where=own.where("where"),
            over=own.texts("over", required=False),
            bound=own.number(sides[0]),
            above=sides[0] == "above",
            margin=own.number("margin", default=0.0),
            minus=own.optional_text("minus"),
        )
        own.finish()
        if found.margin < 0:
            raise own.wrong("margin", f"expected at least 0, found {found.margin:g}")
        return found

    @property
    def question(self) -> str:
        """Say in a line what is asked."""
        return ""
