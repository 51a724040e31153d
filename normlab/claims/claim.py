"""Claims as files of `configs/claim`: one claim, its parts, and the endpoint that decides each.

    id: 2                                  begins the file's name
    documents: [D0]
    statement: In translation batch norm loses 6.5 BLEU to layer norm, and is unstable.
    chinese: 在翻译中，批归一化比层归一化低 6.5 BLEU。  optional, for the summary
    figure: 28.7 BLEU, against 35.2        the document's own value; null without one
    literature: what published sources say
    see: [results/LOG.md]                  optional: pages with evidence that decides nothing
    parts:
      - name: worse                        unique in the claim, words joined by _
        statement: Batch norm translates worse than layer norm.
        chinese: 批归一化的译文差于层归一化。  optional
        says: difference                   difference, equality, trains, fails, figure, definition
        endpoint: {contrast: {...}}        exactly one, of a kind of `KINDS`
        secondary: [{contrast: {...}}]     optional; shown, never counted
        note: ...                          optional: what a reader who quotes the verdict must know

Every error names the file, the key and the cure.
"""

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from normlab.claims.contrast import Contrast
from normlab.claims.endpoint import (
    Awaits,
    Computed,
    Endpoint,
    Published,
    StudyEndpoint,
    Text,
    Timing,
)
from normlab.claims.level import Document, Level, Trains
from normlab.config.registry import read_yaml
from normlab.studies.load import convert

Says = Literal["difference", "equality", "trains", "fails", "figure", "definition"]
DOCUMENTS = ("D0", "D1", "D2", "D3", "D4")
KINDS: Mapping[str, type[Endpoint]] = {
    kind.kind: kind
    for kind in (Contrast, Trains, Level, Document, Computed, Timing, Published, Awaits)
}
_LISTS = ("documents", "see", "score", "over", "only")  # a single text stands for a list of it
_T = TypeVar("_T")
_SHORT = {"computed": "check", "awaits": "reason"}  # the key that a text alone stands for


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be true or false by itself: one primary endpoint, and secondary ones."""

    name: Annotated[str, Meta(pattern="^[a-z0-9]+(_[a-z0-9]+)*$")]
    statement: Text
    says: Says
    endpoint: Any
    secondary: tuple[Any, ...] = ()
    chinese: str = ""
    note: str = ""


class Claim(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim of the documents: its parts, the document's own value, what is published."""

    id: int
    documents: Annotated[tuple[Literal["D0", "D1", "D2", "D3", "D4"], ...], Meta(min_length=1)]
    statement: Text
    figure: str | None
    literature: Text
    parts: Annotated[tuple[Any, ...], Meta(min_length=1)]
    see: tuple[Text, ...] = ()
    chinese: str = ""
    path: str = ""

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return Path(self.path).stem


def load_all(folder: Path) -> list[Claim]:
    """Read all claims of a folder, by id; raises `ValueError` for a file that is wrong.

    The studies that they name are in the folder `study` next to it.
    """
    claims = sorted((load(path) for path in folder.glob("*.yaml")), key=lambda claim: claim.id)
    for before, after in pairwise(claims):
        if before.id == after.id:
            raise ValueError(f"{folder}: {before.name} and {after.name} share the id {after.id}")
    return claims


def load(path: Path) -> Claim:
    """Read a claim; raises `ValueError` naming the file, the key and what is expected."""
    claim = _read(read_yaml(path), Claim, path, "")
    if claim.path:
        raise ValueError(f"{path}: path: remove the key")
    if not path.stem.startswith(f"{claim.id:02}_"):
        raise ValueError(
            f"{path}: id: {claim.id} does not open the file's name; name it {claim.id:02}_*"
        )
    parts: list[Part] = []
    for number, content in enumerate(claim.parts):
        key = f"parts[{number}]"
        part = _part(content, path, key)
        if part.name in [each.name for each in parts]:
            raise ValueError(f"{path}: {key}.name: {part.name!r} is given twice; rename one")
        parts.append(part)
    return msgspec.structs.replace(claim, path=str(path), parts=tuple(parts))


def _part(content: object, path: Path, key: str) -> Part:
    part = _read(content, Part, path, key)
    endpoint = _endpoint(part.endpoint, path, f"{key}.endpoint")
    if endpoint.says and part.says not in endpoint.says:
        raise ValueError(
            f"{path}: {key}.endpoint.{endpoint.kind}: does not decide what says {part.says}; it "
            f"may say {' or '.join(endpoint.says)}"
        )
    secondary = tuple(
        _endpoint(each, path, f"{key}.secondary[{number}]")
        for number, each in enumerate(part.secondary)
    )
    return msgspec.structs.replace(part, endpoint=endpoint, secondary=secondary)


def _endpoint(node: Any, path: Path, key: str) -> Endpoint:
    if not isinstance(node, dict) or len(node) != 1 or (kind := next(iter(node))) not in KINDS:
        found = " and ".join(map(str, node)) if isinstance(node, dict) and node else repr(node)
        raise ValueError(f"{path}: {key}: needs exactly one of {', '.join(KINDS)}; found {found}")
    content = node[kind]
    if kind in _SHORT and isinstance(content, str):
        content = {_SHORT[kind]: content}
    endpoint = _read(content, KINDS[kind], path, f"{key}.{kind}")
    if isinstance(endpoint, StudyEndpoint):
        study = path.parent.parent / "study" / f"{endpoint.study}.yaml"
        if not study.is_file():
            known = ", ".join(sorted(each.stem for each in study.parent.glob("*.yaml")))
            raise ValueError(f"{path}: {key}.{kind}.study: no file {study}; name one of {known}")
        if endpoint.scale not in (known := _scales(study, study.stat().st_mtime_ns)):
            raise ValueError(
                f"{path}: {key}.{kind}.scale: {study} has no scale {endpoint.scale!r}; name one "
                f"of {', '.join(known)}"
            )
    return endpoint


@cache
def _scales(study: Path, _changed: int) -> tuple[str, ...]:
    content = read_yaml(study)
    scales = content.get("scales") if isinstance(content, dict) else None
    return tuple(scales) if isinstance(scales, dict) else ()


def _read(content: Any, kind: type[_T], path: Path, key: str) -> _T:
    if isinstance(content, dict):
        lists = {key: [value] for key, value in content.items() if key in _LISTS}
        content |= {key: value for key, value in lists.items() if isinstance(value[0], str)}
    return convert(content, kind, path, key)
