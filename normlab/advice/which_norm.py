"""Advice on which norm to use when. Advice is withdrawn if its evidence changes.

`which_norm_text` returns `results/which_norm.md` in both languages, from `configs/which_norm.yaml`:

when: {zh: ..., en: ...}     the situation
advice: {zh: ..., en: ...}   withdrawn if a part in `rests_on` no longer has its verdict, or if a
                             number is not `within` its bounds; `{0:.1f}` is the size of the first
                             number
rests_on: {2.worse: supported, ...}
also: [2.unstable, ...]      other parts that a reader should know of, whatever their verdicts
numbers: [{gap: ..., within: [0, null]}, ...]    differences between rows on which no part has a
                             verdict, written as in configs/article/, with bounds on their means
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from normlab.articles.evidence_kinds import GapEvidence
from normlab.articles.results import Results
from normlab.claims.in_words.finding_text import finding_text, grade_text
from normlab.claims.in_words.language import CHINESE, ENGLISH, Locale, Words
from normlab.claims.verdict import PART_VERDICTS
from normlab.config.conversion import WrongField, convert
from normlab.config.folders import CONFIG_DIR
from normlab.config.yaml_files import read_yaml
from normlab.records.labels import in_markdown
from normlab.templates import environment

WHICH_NORM = "which_norm.md"
"""The name of the page in the folder of published runs."""


class BoundedGap(GapEvidence, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A difference between rows whose mean must stay `within` bounds, where null is no bound."""

    within: tuple[float | None, float | None]

    def changed(self, results: Results) -> bool:
        low, high = self.within
        mean = self.interval(results).mean
        return (low is not None and mean < low) or (high is not None and mean > high)


class Situation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A situation, the advice for it, and the parts of claims that the advice rests on."""

    when: Words
    advice: Words
    rests_on: dict[str, str]
    also: tuple[str, ...] = ()
    numbers: tuple[BoundedGap, ...] = ()

    def __post_init__(self) -> None:
        """Raise WrongField if the advice rests on nothing, or on an unknown verdict."""
        if not self.rests_on:
            raise WrongField("rests_on", "is empty; list a part of a claim and its verdict")
        for name, verdict in self.rests_on.items():
            if verdict not in PART_VERDICTS:
                known = ", ".join(PART_VERDICTS)
                raise WrongField(
                    f"rests_on.{name}", f"{verdict!r} is not a verdict; choose from {known}"
                )

    def changed_parts(self, results: Results) -> list[str]:
        """Return the parts that no longer have the verdict that the advice needs."""
        needed = self.rests_on.items()
        return [name for name, verdict in needed if results.part(name).verdict != verdict]

    def changed_numbers(self, results: Results) -> list[BoundedGap]:
        return [number for number in self.numbers if number.changed(results)]

    def advice_text(self, results: Results, language: Locale) -> str:
        """Return the advice, with the sizes of its numbers filled in."""
        sizes = [abs(number.interval(results).mean) for number in self.numbers]
        return self.advice.text(language).format(*sizes)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    situations: tuple[Situation, ...]


def load_situations(path: Path) -> tuple[Situation, ...]:
    """Return the situations in a file. Raise a UserError with file and key if it is invalid."""
    return convert(read_yaml(path), _File, path).situations


def which_norm_page(results: Path) -> str:
    """Return the page with the situations of `configs/which_norm.yaml`."""
    return which_norm_text(load_situations(CONFIG_DIR / "which_norm.yaml"), Results(results))


def which_norm_text(situations: Sequence[Situation], results: Results) -> str:
    """Return the page in Markdown. Raise UserError if it refers to a part that does not exist."""
    shown = {
        language.code: [_shown(situation, results, language) for situation in situations]
        for language in (ENGLISH, CHINESE)
    }
    return environment("normlab.advice").get_template("which_norm.md").render(shown).rstrip() + "\n"


class _Shown(Struct, frozen=True):
    """A situation in one language. The advice is withdrawn if `changed` has any lines."""

    when: str
    advice: str
    changed: list[str]
    evidence: list[str]
    also: list[str]
    numbers: list[str]


def _shown(situation: Situation, results: Results, language: Locale) -> _Shown:
    def parts(names: Sequence[str]) -> list[str]:
        return [_part_line(name, results, language) for name in names]

    def numbers(gaps: Sequence[BoundedGap]) -> list[str]:
        return [in_markdown(gap.cell(results, language).line) for gap in gaps]

    return _Shown(
        when=in_markdown(situation.when.text(language)),
        advice=in_markdown(situation.advice_text(results, language)),
        changed=[
            *parts(situation.changed_parts(results)),
            *numbers(situation.changed_numbers(results)),
        ],
        evidence=parts([*situation.rests_on]),
        also=parts(situation.also),
        numbers=numbers(situation.numbers),
    )


def _part_line(name: str, results: Results, language: Locale) -> str:
    """Return a part with its verdict, statement, finding, grade and place."""
    part = results.part(name)
    finding = finding_text(part, language)
    facts = [in_markdown(text) for text in (finding, grade_text(part, language)) if text]
    text = language.phrasing.between.join(facts)
    graded = text.join(language.phrasing.ends) if text else ""
    place = f"[{results.place(name)}](claims.md#claim-{results.claim_of(name).id})"
    statement = in_markdown(language.choose(part.chinese, part.statement))
    measured = language.phrasing.measurement.format(text) if finding else graded
    verdict = f"*{language.verdicts[part.verdict]}*"
    return f"{verdict} {language.phrasing.about.format(place, statement)}{measured}"
