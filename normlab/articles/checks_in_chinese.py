"""The findings of computed checks in Chinese.

A check reports its findings in English. The Chinese is written by hand: for a part of a claim in
`templates/check_findings.zh.yaml`, keyed by the finding's name, and for a sentence in the `zh:` of
its `check:`. The text quotes the finding's numbers, or is marked with the standing for which it is
true. So it cannot go unnoticed if the check finds something else.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from normlab.articles.results import Results
from normlab.claims.evidence import CheckFinding
from normlab.claims.source import EvidenceSource
from normlab.config.conversion import convert, wrong_value
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError

FINDINGS_IN_CHINESE = Path(__file__).parent / "templates" / "check_findings.zh.yaml"


class ByStanding(Struct, frozen=True, forbid_unknown_fields=True):
    """The Chinese of a finding that supports its claim, and of one that contradicts it."""

    supports: str = ""
    contradicts: str = ""


Translation = str | ByStanding
"""A finding in Chinese: a text that quotes its numbers, or texts for its standings.

For example, `变化 {moved:.1%}` or `{supports: 结果不变}`.
"""


def translated(translation: Translation, finding: CheckFinding, place: str) -> str:
    """Return a finding in Chinese.

    Raises a UserError that begins with `place` if the text quotes an unknown number or no number at
    all, or if there is no text for the finding's standing.
    """
    text = translation
    if isinstance(text, ByStanding):
        text = text.supports if finding.standing == "supports" else text.contradicts
        if not text:
            raise UserError(
                f"{place}: the check now {finding.standing} its claim ({finding.finding}); state "
                f"this in Chinese with {finding.standing}:"
            )
    elif "{" not in text:
        raise UserError(
            f"{place}: {text!r} quotes no number, so it would not change with the finding; quote "
            f"a number, or write {{{finding.standing}: {text}}}"
        )
    try:
        return text.format(**finding.numbers)
    except (LookupError, ValueError):
        names = ", ".join(finding.numbers) or "none"
        raise UserError(
            f"{place}: {text!r} quotes an unknown number; the finding's numbers are {names}"
        ) from None


def deciding_findings(
    source: EvidenceSource, results: Results, path: Path = FINDINGS_IN_CHINESE
) -> Iterator[tuple[CheckFinding, str]]:
    """Yield the findings of a check that decide a part, each with its Chinese text.

    Raises a UserError that names the file and the key if a finding has no Chinese text.
    """
    texts = _translations(path).get(source.check, {})
    for finding in results.checks.get(source.check, ()):
        if source.only and finding.name not in source.only:
            continue
        key = f"{source.check}.{finding.name}"
        if finding.name not in texts:
            raise wrong_value(path, key, f"no text in Chinese yet; translate {finding.finding}")
        yield finding, translated(texts[finding.name], finding, f"{path}: {key}")


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    checks: dict[str, dict[str, Translation]]


@cache
def _translations(path: Path) -> Mapping[str, Mapping[str, Translation]]:
    return convert(read_yaml(path), _File, path).checks
