"""The endpoint `document`: does the interval of what was measured hold the document's figure?

document:
  study: translation
  scale: gpu
  score: test/bleu_tok
  of: {norm: bn}
  where: {placement: pre}           optional
  over: [batching]                  optional: nuisances, averaged within a seed
  value: 28.7
  data: {task: iwslt}               the document's own; on other data nothing is compared
"""

from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.node import Node, Where


@dataclass(frozen=True)
class Document:
    """One setting, of which the document states a figure."""

    kind: ClassVar[str] = "document"
    says: ClassVar[tuple[str, ...]] = ("figure",)

    study: str
    scale: str
    scores: tuple[str, ...]
    of: Where
    where: Where
    over: tuple[str, ...]
    value: float
    data: Where

    @classmethod
    def read(cls, node: Node) -> "Document":
        """Read it; see the module for the keys."""
        own = node.node(cls.kind)
        study, scale = own.study()
        found = cls(
            study=study,
            scale=scale,
            scores=own.texts("score"),
            of=own.where("of", required=True),
            where=own.where("where"),
            over=own.texts("over", required=False),
            value=own.number("value"),
            data=own.where("data", required=True),
        )
        own.finish()
        return found

    @property
    def question(self) -> str:
        """Say in a line what is asked."""
        return ""
