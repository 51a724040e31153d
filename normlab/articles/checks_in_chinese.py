"""The findings of computed checks in Chinese.

A check says what it found in English. Its Chinese is written by hand: for a claim's part in
`templates/check_findings.zh.yaml`, for a sentence in the `zh:` of its `check:`. It quotes the
finding's numbers, or says for which standing it is true, so that it cannot stay as it is if the
check finds something else.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

import msgspec
import yaml
from msgspec import Struct

from normlab.articles.results import Results
from normlab.claims.evidence import CheckFinding
from normlab.claims.source import EvidenceSource
from normlab.errors import UserError


class ByStanding(Struct, frozen=True, forbid_unknown_fields=True):
    """A finding in Chinese if it supports its claim, or if it contradicts it."""

    supports: str = ""
    contradicts: str = ""


Translation = str | ByStanding
"""A finding in Chinese: a text that quotes its numbers, or one that holds for one standing only.

`变化 {moved:.1%}`, or `{supports: 结果不变}`.
"""


def translated(translation: Translation, finding: CheckFinding, place: str) -> str:
    """Return a finding in Chinese.

    Raises a UserError that begins with `place` if the text quotes a number that does not exist, or
    if there is no text for what was found.
    """
    text = translation
    if isinstance(text, ByStanding):
        text = text.supports if finding.standing == "supports" else text.contradicts
        if not text:
            raise UserError(
                f"{place}: the check now {finding.standing} its claim ({finding.finding}): say so "
                f"in Chinese with {finding.standing}:"
            )
    elif "{" not in text:
        raise UserError(
            f"{place}: {text!r} quotes no number, so it would stay if the finding changed: quote "
            f"one, or write {{{finding.standing}: {text}}}"
        )
    try:
        return text.format(**finding.numbers)
    except (LookupError, ValueError):
        names = ", ".join(finding.numbers) or "none"
        raise UserError(f"{place}: {text!r}: the finding's numbers are {names}") from None


def deciding_findings(
    source: EvidenceSource, results: Results
) -> Iterator[tuple[CheckFinding, str]]:
    """Yield the findings of a check that decide a part, each with its Chinese."""
    findings, texts = results.checks.get(source.check, ()), _translations()[source.check]
    for finding, text in zip(findings, texts, strict=True):
        if not source.only or finding.name in source.only:
            yield finding, translated(text, finding, source.check)


@cache
def _translations() -> Mapping[str, tuple[Translation, ...]]:
    path = files("normlab.articles") / "templates" / "check_findings.zh.yaml"
    texts = yaml.safe_load(path.read_text("utf-8"))
    return msgspec.convert(texts, dict[str, tuple[Translation, ...]])
