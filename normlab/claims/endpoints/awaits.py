"""The endpoint `awaits`: why nothing measures a part yet.

awaits: There is no task of pictures yet.
"""

from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.node import Node


@dataclass(frozen=True)
class Awaits:
    """The reason why a part is not measured."""

    kind: ClassVar[str] = "awaits"
    says: ClassVar[tuple[str, ...]] = ()

    reason: str

    @classmethod
    def read(cls, node: Node) -> "Awaits":
        """Read it; see the module for the form."""
        return cls(node.text(cls.kind))

    @property
    def question(self) -> str:
        """Say in a line what is asked."""
        return ""
