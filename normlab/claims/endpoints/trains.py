"""The endpoint `trains`: of how many seeds a setting trains, against a reference.

trains:
  study: translation
  scale: cpu
  score: test/bleu                  held against the floor that the run knows
  side: {norm: none}
  reference: {norm: ln}             optional where the part says trains
  where: {placement: pre}           optional
  over: [batching]                  optional: a seed trains where all its runs do
"""

from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.node import Node, Where


@dataclass(frozen=True)
class Trains:
    """A side, and the side that it is held against, by the counts of seeds that train."""

    kind: ClassVar[str] = "trains"
    says: ClassVar[tuple[str, ...]] = ("trains", "fails")

    study: str
    scale: str
    score: str
    side: Where
    reference: Where
    where: Where
    over: tuple[str, ...]

    @classmethod
    def read(cls, node: Node) -> "Trains":
        """Read it; see the module for the keys."""
        own = node.node(cls.kind)
        study, scale = own.study()
        found = cls(
            study=study,
            scale=scale,
            score=own.text("score"),
            side=own.where("side", required=True),
            reference=own.where("reference"),
            where=own.where("where"),
            over=own.texts("over", required=False),
        )
        own.finish()
        if found.side == found.reference:
            raise own.wrong("reference", "is the same as side; name another setting")
        return found

    @property
    def question(self) -> str:
        """Say in a line what is asked."""
        return ""
