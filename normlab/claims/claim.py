"""Claims as files of `configs/claim`: one claim, its parts, and the endpoint that decides each.

    id: 2                                  opens the file's name
    documents: [D0]
    statement: In translation batch norm loses 6.5 BLEU to layer norm, and is unstable.
    chinese: 在翻译中，批归一化比层归一化低 6.5 BLEU。  optional, for the summary
    figure: 28.7 BLEU, against 35.2        the document's own; null without one
    literature: what published sources say
    see: [results/LOG.md]                  optional: pages with evidence that decides nothing
    parts:
      - name: worse                        unique in the claim, words joined by _
        statement: Batch norm translates worse than layer norm.
        chinese: 批归一化的译文差于层归一化。  optional
        says: difference                   difference, equality, trains, fails, figure, definition
        endpoint: {contrast: {...}}        exactly one, of a kind of `normlab.claims.endpoints`
        secondary: [{contrast: {...}}]     optional; shown, never counted

Whatever a file has too much, too little or otherwise than expected is an error that names the file,
the key and the cure.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

from normlab.claims.endpoints import KINDS, Endpoint
from normlab.claims.node import Node
from normlab.yaml_file import read_yaml

Says = Literal["difference", "equality", "trains", "fails", "figure", "definition"]
DOCUMENTS = ("D0", "D1", "D2", "D3", "D4")
_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


@dataclass(frozen=True)
class Part:
    """What can be true or false by itself, and its one primary endpoint.

    `secondary` endpoints speak to the part as well; they are shown and never counted. `note` says
    what a reader who quotes the verdict has to know beside it.
    """

    name: str
    statement: str
    says: Says
    endpoint: Endpoint
    secondary: tuple[Endpoint, ...] = ()
    chinese: str = ""
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim of the documents: its parts, the document's own figure, what is published."""

    id: int
    name: str
    documents: tuple[str, ...]
    statement: str
    figure: str | None
    literature: str
    parts: tuple[Part, ...]
    see: tuple[str, ...] = ()
    chinese: str = ""


def load_all(folder: Path) -> list[Claim]:
    """Read all claims of a folder, by id; raises `ValueError` for a file that is wrong.

    The studies that they name lie in the folder `study` beside it.
    """
    claims = sorted((load(path) for path in folder.glob("*.yaml")), key=lambda claim: claim.id)
    for before, after in pairwise(claims):
        if before.id == after.id:
            raise ValueError(f"{folder}: {before.name} and {after.name} share the id {after.id}")
    return claims


def load(path: Path) -> Claim:
    """Read a claim; raises `ValueError` naming the file, the key and what is expected."""
    node = Node(read_yaml(path), f"{path}", studies=path.parent.parent / "study")
    claim = Claim(
        id=node.integer("id"),
        name=path.stem,
        documents=node.texts("documents", allowed=DOCUMENTS),
        statement=node.text("statement"),
        chinese=node.optional_text("chinese") or "",
        figure=node.optional_text("figure", required=True),
        literature=node.text("literature"),
        see=node.texts("see", required=False),
        parts=tuple(_part(item) for item in node.nodes("parts", required=True)),
    )
    node.finish()
    if not claim.name.startswith(f"{claim.id:02}_"):
        raise node.wrong("id", f"{claim.id} does not open the file's name; name it {claim.id:02}_*")
    names = [part.name for part in claim.parts]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise node.wrong(
                f"parts[{number}].name", f"{name!r} is given twice; rename one of them"
            )
    return claim


def _part(node: Node) -> Part:
    name = node.text("name")
    if not _NAME.fullmatch(name):
        raise node.wrong("name", f"expected words in lower case joined by _, found {name!r}")
    says: Says = node.choice("says", get_args(Says))
    part = Part(
        name=name,
        statement=node.text("statement"),
        chinese=node.optional_text("chinese") or "",
        note=node.optional_text("note") or "",
        says=says,
        endpoint=_endpoint(node.node("endpoint"), says),
        secondary=tuple(_endpoint(item, says) for item in node.nodes("secondary")),
    )
    node.finish()
    return part


def _endpoint(node: Node, says: Says) -> Endpoint:
    """Read the one kind of endpoint that a node has; its part's `says` must go with it."""
    given = [kind for kind in KINDS if node.has(kind)]
    node.finish()
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise node.wrong("", f"needs exactly one of {', '.join(KINDS)}; found {found}")
    kind = KINDS[given[0]]
    endpoint = kind.read(node)
    primary = node.path.endswith("endpoint")
    if primary and kind.says and says not in kind.says:
        raise node.wrong(
            given[0], f"does not decide what says {says}; it may say {' or '.join(kind.says)}"
        )
    return endpoint
