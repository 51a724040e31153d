"""The endpoint `computed`: what a check of `normlab/inspect` finds, of the norm alone (grade D).

    computed: padding.pollutes

or, of a check that finds several things, those whose question begins with one of some texts:

    computed: {check: batch.mates, only: [bn in training]}
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from normlab.claims.endpoints.base import Endpoint
from normlab.claims.evidence import Evidence
from normlab.claims.finding import Finding
from normlab.claims.node import Node
from normlab.claims.runs import Runs

_CHECK = re.compile(r"[a-z_0-9]+\.[a-z_0-9]+")


@dataclass(frozen=True)
class Computed(Endpoint):
    """A check by its name `file.function`; `only` picks of its findings."""

    kind: ClassVar[str] = "computed"

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
                cls.kind, f"expected file.function of normlab/inspect, found {found.check!r}"
            )
        return found

    def question(self, says: str) -> str:
        """Say in a line what is asked."""
        return f"the check {self.check}" + (f": {'; '.join(self.only)}" if self.only else "")

    def judge(self, runs: Runs, says: str) -> Finding:
        """Decide by all that the check finds: one finding to the contrary contradicts."""
        command = "normlab claims --compute"
        pieces = runs.computed.get(self.check)
        if pieces is None:
            return Finding("not measured", reason="not computed", command=command, cost="seconds")
        chosen = [piece for piece in pieces if self._picks(piece)]
        if not chosen:
            known = "; ".join(piece.question for piece in pieces)
            reason = f"the check finds nothing that begins so; it finds: {known}"
            return Finding("not measured", reason=reason, command=command, cost="seconds")
        holds = all(piece.standing == "supports" for piece in chosen)
        said = ". ".join(f"{piece.question}: {piece.finding}" for piece in chosen)
        return Finding("supported" if holds else "contradicted", found=said, grade="D")

    def _picks(self, piece: Evidence) -> bool:
        return not self.only or piece.question.startswith(self.only)
