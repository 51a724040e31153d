"""Decides what a file of `configs/claim` says: one claim, and how it is to be decided.

A file is data alone. Whatever it has too much, too little or otherwise than expected is an error
that names the file and the key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from normlab.claims.predicate import OUTCOMES, Ending, Level, Paired
from normlab.claims.speed import Faster

Decided = Literal["unit", "study", "note"]
Comparison = Paired | Level | Ending | Faster
DOCUMENTS = ("D0", "D1", "D2", "D3", "D4")
_CHECK = re.compile(r"[a-z_]+\.[a-z_]+")


@dataclass(frozen=True)
class Claim:
    """A claim of the documents.

    `figure` is the documents' own, `expected` the direction that they predict. `check` names what
    is computed in seconds, `study` and `comparisons` what records decide, `missing` why nothing
    can be compared yet. A note has a `standing` and its `reason` instead. `see` are pages of this
    repository with evidence that no predicate decides by.
    """

    id: int
    name: str
    documents: tuple[str, ...]
    statement: str
    figure: str | None
    decided: Decided
    expected: str
    literature: str
    check: str | None = None
    study: str | None = None
    comparisons: tuple[Comparison, ...] = ()
    missing: str | None = None
    standing: Literal["supports", "contradicts"] | None = None
    reason: str | None = None
    see: tuple[str, ...] = ()


def load_all(folder: Path) -> list[Claim]:
    """Read all claims of a folder, by id; raises `ValueError` for a file that is wrong."""
    claims = sorted((load(path) for path in folder.glob("*.yaml")), key=lambda claim: claim.id)
    for before, after in pairwise(claims):
        if before.id == after.id:
            raise ValueError(f"{folder}: {before.name} and {after.name} share the id {after.id}")
    return claims


def load(path: Path) -> Claim:
    """Read a claim; raises `ValueError` naming the file, the key and what is expected."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {error}") from None
    node = _Node(content, f"{path}")
    claim = Claim(
        id=node.integer("id"),
        name=path.stem,
        documents=node.texts("documents", allowed=DOCUMENTS),
        statement=node.text("statement"),
        figure=node.optional_text("figure", required=True),
        decided=node.choice("decided", get_args(Decided)),
        expected=node.text("expected"),
        literature=node.text("literature"),
        check=node.optional_text("check"),
        study=node.optional_text("study"),
        comparisons=tuple(_comparison(item) for item in node.nodes("comparisons")),
        missing=node.optional_text("missing"),
        standing=node.choice("standing", ("supports", "contradicts"), required=False),
        reason=node.optional_text("reason"),
        see=node.texts("see", required=False),
    )
    node.finish()
    _agree(claim, node)
    return claim


def _agree(claim: Claim, node: "_Node") -> None:
    """Refuse keys that do not go together."""
    if not claim.name.startswith(f"{claim.id:02}_"):
        raise node.wrong("id", f"{claim.id} does not open the file's name; name it {claim.id:02}_*")
    if claim.check is not None and not _CHECK.fullmatch(claim.check):
        raise node.wrong("check", f"expected file.function, found {claim.check!r}")
    of_runs = any(not isinstance(comparison, Faster) for comparison in claim.comparisons)
    wanted = {
        "check": (claim.check is not None, claim.decided == "unit" or None),
        "study": (
            claim.study is not None,
            of_runs or (claim.decided == "study" and not claim.comparisons),
        ),
        "missing": (
            claim.missing is not None,
            claim.decided == "study" and not claim.comparisons,
        ),
        "standing": (claim.standing is not None, claim.decided == "note"),
        "reason": (claim.reason is not None, claim.decided == "note"),
    }
    for key, (given, due) in wanted.items():
        if due is None or given == due:
            continue
        because = f"where decided is {claim.decided} with {len(claim.comparisons)} comparisons"
        raise node.wrong(key, f"{'missing' if due else 'does not belong'} {because}")


def _comparison(node: "_Node") -> Comparison:
    found: Comparison
    if "faster" in node.content:
        names = (node.text(key) for key in ("faster", "than", "group"))
        found = Faster(*names, margin=node.number("margin", default=0.0))
        node.finish()
        return found
    where = node.where("where")
    if "outcome" in node.content:
        outcome = node.choice("outcome", OUTCOMES)
        found = Ending(outcome, node.where("in"), where)
    elif "in" in node.content:
        sides = [key for key in ("above", "below") if key in node.content]
        if len(sides) != 1:
            raise node.wrong("in", "needs one of the keys above and below")
        found = Level(
            name=node.text("measure"),
            inside=node.where("in"),
            where=where,
            bound=node.number(sides[0]),
            above=sides[0] == "above",
            minus=node.optional_text("minus"),
        )
    else:
        by_score = "score" in node.content
        keys = ("score", "better", "worse") if by_score else ("measure", "more", "less")
        found = Paired(
            name=node.text(keys[0]),
            first=node.where(keys[1]),
            second=node.where(keys[2]),
            where=where,
            margin=node.number("margin", default=0.0),
            besides=node.texts("besides", required=False),
            minus=node.optional_text("minus"),
            by_score=by_score,
        )
    node.finish()
    return found


class _Node:
    """A mapping of a file: its errors name the file and the key, and it knows what was read."""

    def __init__(self, content: Any, origin: str, path: str = "") -> None:
        self.origin, self.path = origin, path
        self._read: set[str] = set()
        if not isinstance(content, dict):
            raise self.wrong("", f"expected keys and values, found {content!r:.60}")
        self.content: Mapping[str, Any] = content

    def wrong(self, key: str, problem: str) -> ValueError:
        name = ".".join(part for part in (self.path, key) if part) or "the file"
        return ValueError(f"{self.origin}: {name}: {problem}")

    def finish(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self.content:
            if key not in self._read:
                known = ", ".join(sorted(self._read))
                raise self.wrong(str(key), f"no such key here; allowed: {known}")

    def _get(self, key: str, expected: str, *types: type, required: bool = True) -> Any:
        self._read.add(key)
        if key not in self.content:
            if required:
                raise self.wrong(key, "missing")
            return None
        value = self.content[key]
        if type(value) not in types:  # exact: a bool is an int to isinstance
            raise self.wrong(key, f"expected {expected}, found {value!r:.60}")
        return value

    def text(self, key: str) -> str:
        return self._get(key, "a text", str)

    def optional_text(self, key: str, *, required: bool = False) -> str | None:
        types = (str, type(None)) if required else (str,)
        return self._get(key, "a text", *types, required=required)

    def integer(self, key: str) -> int:
        return self._get(key, "a whole number", int)

    def number(self, key: str, default: float | None = None) -> float:
        if default is not None and key not in self.content:
            self._read.add(key)
            return default
        return float(self._get(key, "a number", int, float))

    def choice(self, key: str, allowed: tuple[str, ...], *, required: bool = True) -> Any:
        value = self._get(key, "a text", str, required=required)
        if value is not None and value not in allowed:
            raise self.wrong(key, f"{value!r} is not one of {', '.join(allowed)}")
        return value

    def texts(
        self, key: str, *, allowed: tuple[str, ...] | None = None, required: bool = True
    ) -> tuple[str, ...]:
        items = self._get(key, "a list", list, required=required) or []
        for item in items:
            if not isinstance(item, str) or (allowed is not None and item not in allowed):
                raise self.wrong(key, f"{item!r} is not one of {', '.join(allowed or ('a text',))}")
        if required and not items:
            raise self.wrong(key, "the list is empty")
        return tuple(items)

    def where(self, key: str) -> dict[str, object]:
        """Read what runs are chosen by: names and plain values; `where` itself may be left out."""
        chosen = self._get(key, "names and values", dict, required=key != "where") or {}
        for name, value in chosen.items():
            if not isinstance(name, str) or isinstance(value, dict | list):
                raise self.wrong(f"{key}.{name}", f"expected one value, found {value!r:.60}")
        return dict(chosen)

    def nodes(self, key: str) -> list["_Node"]:
        items = self._get(key, "a list", list, required=False) or []
        base = f"{self.path}.{key}" if self.path else key
        return [_Node(item, self.origin, f"{base}[{i}]") for i, item in enumerate(items)]
