"""The ledger's file, `results/claims.json`, with an entry for each claim and each part.

`saved` makes the entries from judged claims. All code that shows a verdict reads it with
`read_ledger`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from normlab.claims.side import SideValue
from normlab.claims.source import EvidenceSource, Unit
from normlab.claims.verdict import Reason, Verdict
from normlab.config.suggestions import squeezed
from normlab.errors import UserError

LEDGER = "claims.json"
"""The ledger's file, in the folder of published runs."""


class SavedPart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a claim, or one of its secondary endpoints: question, verdict and result.

    `part` is its position in the claim, from 1, and `name` is how other files refer to it. `grades`
    is its grade in Chinese and in English, or empty. `minus` is the score that is subtracted.
    `value`, from `low` to `high`, is the first of the `sides` minus the second, the first divided
    by the second, or the share by which the first takes more time, and `number` is the same as
    rounded text. `sides` are the values behind it or, if `counted`, how many seeds of each side
    train. A number between the `limits` means no difference. `p` is the p value before correction
    for other endpoints. `excluded` says why runs do not count, and `to_measure` is the command that
    measures more. Fields with a default are left out of the file if they are empty.
    """

    part: int
    name: str
    statement: str
    chinese: str
    question: str
    source: EvidenceSource
    verdict: Verdict
    verdict_text: str
    grades: tuple[str, ...]
    finding: str
    unit: Unit
    scores: tuple[str, ...] = ()
    minus: str = ""
    number: tuple[str, ...] = ()
    sides: tuple[SideValue, ...] = ()
    counted: bool = False
    reason: Reason | None = None
    limits: tuple[float, ...] = ()
    test: str
    trained: tuple[tuple[str, int, int], ...] = ()
    excluded: str
    to_measure: str
    cost: str
    n: int
    p: float | None = None
    p_corrected: float | None = None
    confidence: float | None = None
    value: float | str | None = None
    low: float | str | None = None
    high: float | str | None = None
    records: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Whether some evidence counts for the part, even if it does not decide it."""
        return self.verdict != "not measured"


class SavedClaim(Struct, frozen=True, kw_only=True):
    """A claim with its verdict, its parts and their secondary endpoints."""

    id: int
    verdict: str
    verdict_text: str
    statement: str
    chinese: str
    answer: str
    chinese_answer: str
    figure: str | None
    articles: tuple[str, ...]
    see: tuple[str, ...]
    literature: str
    parts: tuple[SavedPart, ...]
    secondary: tuple[SavedPart, ...]

    def statements_with(self, words: str) -> list["SavedClaim | SavedPart"]:
        """Return the claim and the parts whose statements contain the words.

        Statements are searched in both languages. "layernorm", "layer norm" and "layer-norm" are
        the same.
        """
        of_all: list[SavedClaim | SavedPart] = [self, *self.parts]
        texts = ((each, f"{each.statement}\n{each.chinese}".lower()) for each in of_all)
        letters = map(re.escape, squeezed(words) or words)
        spellings = re.compile(r"(?<![^\W_])" + r"[-_\s]?".join(letters))
        return [each for each, text in texts if words.lower() in text or spellings.search(text)]


def read_ledger(results: Path, again: str = "normlab claims --write") -> Mapping[int, SavedClaim]:
    """Return the claims in a folder of published runs, keyed by number.

    If the file is missing or damaged, raises a UserError with `again`, the command that writes it.
    """
    path = results / LEDGER
    try:
        claims = msgspec.json.decode(path.read_bytes(), type=list[SavedClaim])
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        why = "missing" if isinstance(error, FileNotFoundError) else f"damaged ({error})"
        raise UserError(
            f"{path} is {why}; {again} creates it from the records, and --results reads another "
            "folder"
        ) from None
    return {claim.id: claim for claim in sorted(claims, key=lambda claim: claim.id)}
