"""Reads claims, their parts and the parts' endpoints from the files in `configs/claim`.

id: 2                                  the file's name must start with it
articles: [article 1]
statement: In translation, batch norm loses 6.5 BLEU to layer norm, and is unstable.
chinese: 在翻译中，批归一化比层归一化低 6.5 BLEU。  optional, for the summary
answer: True that it translates worse. ...  begins as the verdict does: True, Not true, Partly true,
                                   Open, Not tested (tests/claims/test_claim.py)
chinese_answer: 译文更差这一点成立。...
figure: 28.7 BLEU, against 35.2        the value reported by the article, or null
literature: ...                        what published sources say
see: [results/LOG.md]                  optional: related pages that are not evidence
parts:
  - name: worse                        words joined by _
    statement: Batch norm translates worse than layer norm.
    chinese: 批归一化的译文差于层归一化。  optional
    assertion: difference              difference, equality, trains, fails, figure, definition
    endpoint: {contrast: {...}}        exactly one, of a kind in `KINDS`
    secondary: [{contrast: {...}}]     optional: shown, but they decide nothing
    note: ...                          optional: a caveat to quote with the verdict
    chinese_note: ...                  needed with a note

Errors give the file, the key and the fix.
"""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from normlab.claims.endpoint import Endpoint
from normlab.claims.other_endpoints import Computed, Published, Timing
from normlab.claims.study_endpoints import Contrast, Gap, Level, Reported, Spread, Trains
from normlab.config.conversion import Text, convert
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError

KINDS: dict[str, type[Endpoint]] = {
    kind.__name__.lower(): kind
    for kind in (Contrast, Gap, Spread, Trains, Level, Reported, Computed, Timing, Published)
}
_Article = Annotated[str, Meta(pattern="^(article [1-5]|a question of our own)$")]


class _PartTexts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(pattern="^[a-z0-9]+(_[a-z0-9]+)*$")]
    statement: Text
    assertion: Literal["difference", "equality", "trains", "fails", "figure", "definition"]
    chinese: str = ""
    note: str = ""
    chinese_note: str = ""


class _PartInFile(_PartTexts, frozen=True, kw_only=True):
    endpoint: object
    secondary: tuple[object, ...] = ()


class Part(_PartTexts, frozen=True, kw_only=True):
    """A part of a claim. Its `endpoint` decides it, and `secondary` endpoints are only shown."""

    endpoint: Endpoint
    secondary: tuple[Endpoint, ...] = ()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All endpoints, beginning with the primary one."""
        return self.endpoint, *self.secondary


class _ClaimTexts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: int
    articles: Annotated[tuple[_Article, ...], Meta(min_length=1)]
    statement: Text
    answer: Text
    chinese_answer: Text
    figure: str | None
    literature: Text
    see: tuple[Text, ...] = ()
    chinese: str = ""


class _ClaimInFile(_ClaimTexts, frozen=True, kw_only=True):
    parts: Annotated[tuple[object, ...], Meta(min_length=1)]


class Claim(_ClaimTexts, frozen=True, kw_only=True):
    """A claim of the articles, with its parts.

    `figure` is the value that the articles report, and `literature` what published sources say.
    """

    parts: tuple[Part, ...]
    path: str = ""


def load_all(folder: Path) -> list[Claim]:
    """Read all claims in a folder, sorted by id. An invalid file raises `UserError`."""
    return sorted((load(path) for path in folder.glob("*.yaml")), key=lambda claim: claim.id)


def load(path: Path) -> Claim:
    """Read a claim, or raise a `UserError` with the file, the key and the expected value."""
    claim = convert(read_yaml(path), _ClaimInFile, path)
    if not path.stem.startswith(name := f"{claim.id:02}_"):
        raise UserError(f"{path}: id: {claim.id} is not in the file name; rename it to {name}*")
    parts = tuple(_part(each, path, f"parts[{number}]") for number, each in enumerate(claim.parts))
    return Claim(**{**structs.asdict(claim), "parts": parts, "path": str(path)})


def _part(content: object, path: Path, key: str) -> Part:
    part = convert(content, _PartInFile, path, key)
    endpoint = _endpoint(part.endpoint, path, f"{key}.endpoint")
    if endpoint.assertions and part.assertion not in endpoint.assertions:
        kind = type(endpoint).__name__.lower()
        raise UserError(
            f"{path}: {key}.endpoint.{kind} cannot decide a part with assertion: {part.assertion}; "
            f"set assertion: {' or '.join(endpoint.assertions)}"
        )
    secondary = tuple(_endpoint(each, path, f"{key}.secondary") for each in part.secondary)
    return Part(**{**structs.asdict(part), "endpoint": endpoint, "secondary": secondary})


def _endpoint(node: object, path: Path, key: str) -> Endpoint:
    if not isinstance(node, dict) or len(node) != 1 or not node.keys() <= KINDS.keys():
        raise UserError(f"{path}: {key} needs exactly one of {', '.join(KINDS)}; found {node!r}")
    ((kind, content),) = node.items()
    return convert(content, KINDS[kind], path, f"{key}.{kind}")
