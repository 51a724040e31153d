"""What every kind of endpoint has: how it is read from a claim's file, and what it asks."""

from typing import ClassVar, Protocol

from normlab.claims.node import Node


class Endpoint(Protocol):
    """One question that decides a part, or stands beside the one that does."""

    kind: ClassVar[str]
    says: ClassVar[tuple[str, ...]]
    """What a part may say that this decides; empty for anything."""

    @classmethod
    def read(cls, node: Node) -> "Endpoint":
        """Read what stands under the key `kind` of a node; raises `ValueError` naming the key."""
        ...

    @property
    def question(self) -> str:
        """Say in a line what is asked."""
        ...
