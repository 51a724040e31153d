"""The endpoint `published`: what published code or papers settle (grade D).

published: {standing: contradicts, reason: "T5 and LLaMA use RMSNorm."}
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from normlab.claims.node import Node


@dataclass(frozen=True)
class Published:
    """How published sources stand to a part, and which."""

    kind: ClassVar[str] = "published"
    says: ClassVar[tuple[str, ...]] = ()

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

    @property
    def question(self) -> str:
        """Say in a line what is asked."""
        return ""
