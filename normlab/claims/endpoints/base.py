"""What every kind of endpoint has: how it is read from a claim's file, asked, and answered."""

from abc import ABC, abstractmethod
from typing import ClassVar

from normlab.claims.finding import Finding
from normlab.claims.node import Node, Where
from normlab.claims.runs import Runs


class Endpoint(ABC):
    """One question that decides a part, or stands beside the one that does.

    `says` is what a part may say that this kind decides; empty for anything.
    """

    kind: ClassVar[str]
    says: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def read(cls, node: Node) -> "Endpoint":
        """Read what stands under the key `kind` of a node; raises `ValueError` naming the key."""

    @abstractmethod
    def question(self, says: str) -> str:
        """Say in a line what is asked, of a part that `says` what it does."""

    @property
    def family(self) -> tuple[str, str] | None:
        """Return the study and scale within which its p value is corrected; None without one."""
        return None

    @abstractmethod
    def judge(self, runs: Runs, says: str) -> Finding:
        """Answer by what there is, before any correction."""


def keys(where: Where) -> str:
    """Write a selection, such as `norm=bn placement=pre`."""
    return " ".join(f"{key}={_plain(value)}" for key, value in where.items())


def _plain(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
