"""The endpoint `timing`: which of two candidates takes less time, by interleaved rounds.

    timing: {faster: bn folded, than: ln, group: "model, 1 sentence", margin: 0.02}

The names are those of `normlab bench norms`; the margin is a share of the time, 2 % if left out.
"""

from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.node import Node

_MARGIN = 0.02


@dataclass(frozen=True)
class Timing:
    """Two candidates of a group, of which the first is to take less time."""

    kind: ClassVar[str] = "timing"
    says: ClassVar[tuple[str, ...]] = ("difference", "equality")

    faster: str
    slower: str
    group: str
    margin: float = _MARGIN

    @classmethod
    def read(cls, node: Node) -> "Timing":
        """Read it; see the module for the keys."""
        own = node.node(cls.kind)
        found = cls(
            faster=own.text("faster"),
            slower=own.text("than"),
            group=own.text("group"),
            margin=own.number("margin", default=_MARGIN),
        )
        own.finish()
        if found.faster == found.slower:
            raise own.wrong("than", "is the same as faster; name another candidate")
        if not 0 <= found.margin < 1:
            raise own.wrong(
                "margin", f"expected a share of the time, 0 to 1, found {found.margin:g}"
            )
        return found

    @property
    def question(self) -> str:
        """Say in a line what is asked."""
        return ""
