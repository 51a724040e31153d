"""The languages, Chinese and English, in which claims and articles are shown.

The words are in `templates/language.CODE.yaml`. Code that depends on the language calls
`Locale.choose`, or fills in a format string from these files.
"""

from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct, structs

from normlab.claims.texts import data_in_chinese
from normlab.config.conversion import Text, convert, wrong_value
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError
from normlab.metrics.glossary import metric, metric_key

_T = TypeVar("_T")


class ScoreName(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a score, and its unit or ""."""

    name: str
    unit: str = ""

    def __str__(self) -> str:
        return self.name


class ClaimWords(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The words around a claim on a terminal. Only facts with one of the `labels` are shown.

    `verdict`, `part_verdict` and `finding` are format strings. They use either the ledger's English
    text, `{ledger}`, or the text in this language: `{word}`, `{grade}`, `{facts}`.
    """

    statement: str
    short_verdict: str
    verdict: str
    part_verdict: str
    finding: str
    article: str
    own_question: str
    comma: str
    place: str
    to_measure: str
    labels: dict[str, str]
    label_width: int
    secondary: str = ""
    for_part: str = ""
    records: str = ""
    count: str
    differences: str
    last_of_list: str
    last_of_claim: str = ""


class Phrasing(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How texts are joined into sentences and lists.

    `check` is the note on a check finding, `tested` says how a finding was tested, and `ends` are
    the brackets around a remark.
    """

    about: str
    measurement: str
    check: str
    tested: str
    between: str
    comma: str
    stop: str
    ends: tuple[str, str]


class RunWords(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The words around what the runs of a study show: their seeds, and how scores compare."""

    seeds: str
    trains: str
    finished: str
    reached: str
    never: str
    converged: str
    unconverged: str
    untrained: str
    untrained_score: str
    lower: str
    higher: str


class TableWords(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The words around an article's table, and where an article without tables can be read.

    In LaTeX, `leading` is the distance between lines in footnotesize, in points, and
    `latex_packages` lists the packages that the language needs.
    """

    article: str
    measured: str
    caption: str
    legend: str
    cells: str
    brackets: str
    differences: str
    no_tables: str
    play: str
    leading: float
    latex_packages: str = ""


class Signs(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The symbols for minus, plus-minus and percent. Any terminal can print the defaults."""

    minus: str = "-"
    plus_minus: str = "+-"
    percent: str = " %"


class Locale(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The texts around the articles' own words in one language: `templates/language.CODE.yaml`.

    `verdicts` has a phrase for each verdict on a part, and one for mixed verdicts. `scores` has the
    names of scores, keyed as in the glossary, where the English names are, and `differences` those
    of a score minus another one, such as `test/loss - test/seen/loss`. Texts with braces are format
    strings.
    """

    code: Literal["en", "zh"]
    html_code: str
    verdicts: dict[str, str]
    phrasing: Phrasing
    runs: RunWords
    table: TableWords
    claims: ClaimWords
    scores: dict[str, ScoreName] = {}
    differences: dict[str, ScoreName] = {}
    signs: Signs = Signs()

    @property
    def typeset(self) -> "Locale":
        """The language with true minus and plus-minus signs, for pages and LaTeX."""
        signs = structs.replace(self.signs, minus="\u2212", plus_minus="\u00b1")
        return structs.replace(self, signs=signs)

    def choose(self, chinese: _T, english: _T) -> _T:
        """Return the value for this language."""
        return chinese if self.code == "zh" else english

    def number(self, text: str) -> str:
        """Return a number with the language's signs for a leading hyphen and for ` %`."""
        signed = text.replace("-", self.signs.minus, 1) if text.startswith("-") else text
        return signed.replace(" %", self.signs.percent)

    def data_name(self, name: str) -> str:
        """Translate a study's name for its data."""
        return self.choose(data_in_chinese(name), name)

    def score_name(self, score: str, minus: str = "") -> ScoreName:
        """Return the name of a score, or of a score `minus` another one, for readers.

        Raises a UserError that names the file to edit if there is no name yet.
        """
        if minus:
            key = f"{score} - {minus}"
            if key not in self.differences:
                problem = "is the score of a part, but has no name yet; add one"
                raise wrong_value(_file(self.code), f"differences.{key}", problem)
            return self.differences[key]
        known, key = metric(score), metric_key(score)
        if known is None:
            raise UserError(f"score {score} is unknown: normlab/metrics/glossary.py has no {key}")
        english = ScoreName(known.name, known.unit if known.per else "")
        if (name := self.choose(self.scores.get(key), english)) is None:
            problem = f"no text in Chinese yet; translate {known.name}"
            raise wrong_value(_file(self.code), f"scores.{key}", problem)
        return name


def _file(code: str) -> Path:
    return Path(__file__).parent / "templates" / f"language.{code}.yaml"


def _read(code: str) -> Locale:
    return convert(read_yaml(_file(code)), Locale, _file(code))


CHINESE, ENGLISH = _read("zh"), _read("en")
LANGUAGES = {language.code: language for language in (ENGLISH, CHINESE)}
"""The languages, keyed by their codes."""


class Words(Struct, frozen=True, forbid_unknown_fields=True):
    """A text in Chinese and in English. The English may be left out if it is the same."""

    zh: Text
    en: str = ""

    def text(self, language: Locale) -> str:
        return language.choose(self.zh, self.en or self.zh)
