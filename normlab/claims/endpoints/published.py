"""The endpoint `published`: what published code or papers settle (grade D).

published: {standing: contradicts, reason: "T5 and LLaMA use RMSNorm."}

Nothing of it is measured here.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from normlab.claims.endpoints.base import Endpoint
from normlab.claims.finding import Finding
from normlab.claims.node import Node
from normlab.claims.runs import Runs


@dataclass(frozen=True)
class Published(Endpoint):
    """How published sources stand to a part, and which."""

    kind: ClassVar[str] = "published"

    standing: Literal["supports", "contradicts"]
    reason: str

    @classmethod
    def read(cls, node: Node) -> "Published":
        """Read it; see the module for the keys."""
        own = node.node(cls.kind)
        standing = own.choice("standing", ("supports", "contradicts"))
        found = cls(standing, own.text("reason"))
        own.finish()
        return found

    def question(self, says: str) -> str:
        """Say in a line what is asked."""
        return "published code and papers"

    def judge(self, runs: Runs, says: str) -> Finding:
        """Return what the file says."""
        verdict = "supported" if self.standing == "supports" else "contradicted"
        return Finding(verdict, found=self.reason, grade="D")
