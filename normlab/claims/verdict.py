"""The verdicts on parts of claims, the verdict on a claim, and the reason why a part is open."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

import yaml
from msgspec import Struct, field

from normlab.claims.side import spaced

Verdict = Literal["supported", "contradicted", "no difference", "undecided", "not measured"]
"""The verdict on a part. With one of the last two, the part is not decided."""
PART_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
DECIDED = PART_VERDICTS[:-2]
CLAIM_VERDICTS = {
    "supported": "every part that is decided is supported",
    "contradicted": "every part that is decided is contradicted, or shows no difference",
    "mixed": "some parts are supported and others are not",
    "undecided": "measured, but no part is decided",
    "not measured": "no evidence counts yet",
}
"""The verdicts of claims, and what each verdict means for the parts."""


def combined_verdict(parts: Sequence[Verdict]) -> str:
    """Combine the verdicts of a claim's parts.

    Only decided parts count. A claim is `supported` if all of them are supported, `contradicted` if
    each one is contradicted or shows no difference, and otherwise `mixed`. If no part is decided,
    the claim is `undecided` if a part was measured, and otherwise `not measured`.
    """
    decided = set(parts) & set(DECIDED)
    if not decided:
        return "undecided" if "undecided" in parts else "not measured"
    if decided == {"supported"}:
        return "supported"
    return "mixed" if "supported" in decided else "contradicted"


class Reason(Struct, frozen=True, omit_defaults=True):
    """Why a part is open or not measured: the key of a sentence, and the values in it.

    The sentences are in `templates/reasons.yaml`. If `final`, the text adds that more seeds cannot
    decide the part.
    """

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    final: bool = False

    def for_good(self) -> "Reason":
        """Return this reason, adding that more seeds cannot decide the part."""
        return Reason(self.name, self.values, final=True)

    def text(self, language: str, score_name: str = "") -> str:
        """Return the reason in a language, `en` or `zh`.

        In Chinese, `score_name` is the name of the score in the values, if there is one.
        """
        names = [self.name, *(["final"] if self.final else [])]
        subject = spaced([self.values.get("chinese", ""), "的", score_name, "为"])
        values = {**self.values, "subject": subject}
        return "".join(_words()[name][language].format(**values) for name in names)

    def __str__(self) -> str:
        return self.text("en")


@cache
def _words() -> Mapping[str, Mapping[str, str]]:
    path = files("normlab.claims") / "templates" / "reasons.yaml"
    return yaml.safe_load(path.read_text("utf-8"))
