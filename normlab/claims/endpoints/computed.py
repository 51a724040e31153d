"""The endpoint `computed`: what a check of `normlab/checks` finds, of the norm alone (grade D).

    computed: padding.pollutes

or, of a check that finds several things, those whose question begins with one of some texts:

    computed: {check: batch.mates, only: [bn in training]}
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.node import Node

_CHECK = re.compile(r"[a-z_0-9]+\.[a-z_0-9]+")


@dataclass(frozen=True)
class Computed:
    """A check by its name `file.function`; `only` picks of its findings."""

    kind: ClassVar[str] = "computed"
    says: ClassVar[tuple[str, ...]] = ()

    check: str
    only: tuple[str, ...] = ()

    @classmethod
    def read(cls, node: Node) -> "Computed":
        """Read it; see the module for the forms."""
        if isinstance(node.content[cls.kind], dict):
            own = node.node(cls.kind)
            found = cls(own.text("check"), own.texts("only"))
            own.finish()
        else:
            found = cls(node.text(cls.kind))
        if not _CHECK.fullmatch(found.check):
            raise node.wrong(
                cls.kind, f"expected file.function of normlab/checks, found {found.check!r}"
            )
        return found

    @property
    def question(self) -> str:
        """Say in a line what is asked."""
        return ""
