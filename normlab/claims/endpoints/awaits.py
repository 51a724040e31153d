"""The endpoint `awaits`: why nothing measures a part yet.

awaits: There is no task of pictures yet.

Such a part is not measured.
"""

from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.endpoints.base import Endpoint
from normlab.claims.finding import Finding
from normlab.claims.node import Node
from normlab.claims.runs import Runs


@dataclass(frozen=True)
class Awaits(Endpoint):
    """The reason why a part is not measured."""

    kind: ClassVar[str] = "awaits"

    reason: str

    @classmethod
    def read(cls, node: Node) -> "Awaits":
        """Read it; see the module for the form."""
        return cls(node.text(cls.kind))

    def question(self, says: str) -> str:
        """Say in a line what is asked."""
        return "nothing asks it yet"

    def judge(self, runs: Runs, says: str) -> Finding:
        """Return the reason."""
        return Finding("not measured", reason=self.reason)
