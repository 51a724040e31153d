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
        endpoint: {contrast: {...}}        exactly one, of a kind of `KINDS`
        secondary: [{contrast: {...}}]     optional; shown, never counted

Whatever a file has too much, too little or otherwise than expected is an error that names the file,
the key and the cure.
"""

import re
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
from normlab.config.files import read_yaml

Says = Literal["difference", "equality", "trains", "fails", "figure", "definition"]
DOCUMENTS = ("D0", "D1", "D2", "D3", "D4")
KINDS: Mapping[str, type[Endpoint]] = {
    kind.kind: kind
    for kind in (Contrast, Trains, Level, Document, Computed, Timing, Published, Awaits)
}
_LISTS = ("documents", "see", "score", "over", "only")  # where one text stands for a list of it
_SHORT = {"computed": "check", "awaits": "reason"}  # the key that a text alone stands for
_T = TypeVar("_T", bound=Struct)


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be true or false by itself, and its one primary endpoint.

    `secondary` endpoints speak to the part as well; they are shown and never counted. `note` says
    what a reader who quotes the verdict has to know.
    """

    name: Annotated[str, Meta(pattern="^[a-z0-9]+(_[a-z0-9]+)*$")]
    statement: Text
    says: Says
    endpoint: Any
    secondary: tuple[Any, ...] = ()
    chinese: str = ""
    note: str = ""


class Claim(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim of the documents: its parts, the document's own figure, what is published."""

    id: int
    name: str = ""
    documents: Annotated[tuple[Literal["D0", "D1", "D2", "D3", "D4"], ...], Meta(min_length=1)]
    statement: Text
    figure: str | None
    literature: Text
    parts: Annotated[tuple[Any, ...], Meta(min_length=1)]
    see: tuple[Text, ...] = ()
    chinese: str = ""


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
    claim = _convert(read_yaml(path), Claim, f"{path}: ", "")
    if claim.name:
        raise ValueError(f"{path}: name: the file's name is the claim's; remove the key")
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
    return msgspec.structs.replace(claim, name=path.stem, parts=tuple(parts))


def _part(content: object, path: Path, key: str) -> Part:
    part = _convert(content, Part, f"{path}: ", key)
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
    endpoint = _convert(content, KINDS[kind], f"{path}: ", f"{key}.{kind}")
    if isinstance(endpoint, StudyEndpoint):
        study = path.parent.parent / "study" / f"{endpoint.study}.yaml"
        if not study.is_file():
            known = ", ".join(sorted(each.stem for each in study.parent.glob("*.yaml")))
            raise ValueError(
                f"{path}: {key}.{kind}.study: no file {study}; write it, or name one of {known}"
            )
        if endpoint.scale not in (known := _scales(study, study.stat().st_mtime_ns)):
            raise ValueError(
                f"{path}: {key}.{kind}.scale: {study} has no scale {endpoint.scale!r}: add it, or "
                f"name one of {', '.join(known)}"
            )
    return endpoint


@cache
def _scales(study: Path, _changed: int) -> tuple[str, ...]:
    content = read_yaml(study)
    scales = content.get("scales") if isinstance(content, dict) else None
    return tuple(scales) if isinstance(scales, dict) else ()


def _convert(content: Any, kind: type[_T], origin: str, key: str) -> _T:
    """Read a mapping strictly; the error names the key in full and what was found there."""
    if not isinstance(content, dict):
        raise ValueError(
            f"{origin}{key or 'the file'}: expected keys and values, found {content!r:.60}"
        )
    own = {
        name: [value] if name in _LISTS and isinstance(value, str) else value
        for name, value in content.items()
    }
    for name in _LISTS:
        items = own.get(name)
        twice = [each for each in items if items.count(each) > 1] if isinstance(items, list) else ()
        if twice:
            raise ValueError(f"{origin}{key}.{name}: {twice[0]} is given twice")
    try:
        return msgspec.convert(own, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        below = place.rstrip("`").removeprefix(".")
        if own_check := re.match(r"([\w.@]+): (.+)", problem):  # of a `__post_init__`
            below, problem = own_check[1], own_check[2]
        where = ".".join(each for each in (key, below) if each) or "the file"
        if "unknown field" in problem:
            problem += f"; there are {', '.join(kind.__struct_encode_fields__)}"
        first = re.match(r"\w+", below)
        given = first is not None and first[0] in own and own_check is None
        found = f", found {own[first[0]]!r:.60}" if first and given else ""
        raise ValueError(f"{origin}{where}: {problem}{found}") from None
