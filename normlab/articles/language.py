"""The languages of the pages, Chinese and English. Their words are in `templates/`."""

from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from normlab.claims.texts import data_in_chinese
from normlab.config.conversion import Text, convert, wrong_value
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError
from normlab.metrics.glossary import metric, metric_key


class ScoreName(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a score, and its unit, if it has one."""

    name: str
    unit: str = ""

    def __str__(self) -> str:
        return self.name


class ClaimWords(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The words around a claim on a terminal; a fact without one of the `labels` is not shown."""

    statement: str
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
    last_of_list: str
    last_of_claim: str = ""


class Phrasing(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How texts are joined into sentences and lists; `ends` are the brackets around a remark."""

    about: str
    measurement: str
    between: str
    comma: str
    stop: str
    ends: tuple[str, str]


class RunWords(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The words around what the runs of a study show: their seeds, and how scores compare."""

    seeds: str
    trains: str
    reached: str
    never: str
    untrained: str
    lower: str
    higher: str


class TableWords(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The words around an article's table, and where an article without tables can be read."""

    article: str
    measured: str
    caption: str
    legend: str
    cells: str
    brackets: str
    no_tables: str
    play: str


class Signs(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The signs of numbers: those of a terminal, unless others are chosen."""

    minus: str = "-"
    plus_minus: str = "+-"


TRUE_SIGNS = Signs(minus="\u2212", plus_minus="\u00b1")
"""The signs of numbers for pages and LaTeX."""


class Locale(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The texts around the articles' own words in one language: `templates/language.CODE.yaml`.

    `verdicts` has a phrase for each verdict of a part, and one for parts that differ; `scores` has
    the names of scores by their keys in the glossary, which has the English ones; texts with braces
    are format strings.
    """

    code: Literal["en", "zh"]
    verdicts: dict[str, str]
    phrasing: Phrasing
    runs: RunWords
    table: TableWords
    claims: ClaimWords
    scores: dict[str, ScoreName] = {}
    signs: Signs = Signs()

    @property
    def typeset(self) -> "Locale":
        """The language with the true signs of numbers, for pages and LaTeX."""
        return structs.replace(self, signs=TRUE_SIGNS)

    def signed(self, number: str) -> str:
        """Return a negative number with the language's minus sign. Return others unchanged."""
        return number.replace("-", self.signs.minus, 1) if number.startswith("-") else number

    def data_name(self, name: str) -> str:
        """Translate a study's name for its data."""
        return data_in_chinese(name) if self.code == "zh" else name

    def score_name(self, score: str) -> ScoreName:
        """Return the name of a score in words.

        Raise UserError, with the file, if it has none yet.
        """
        known, key = metric(score), metric_key(score)
        if known is None:
            raise UserError(f"score {score} is unknown: normlab/metrics/glossary.py has no {key}")
        if self.code == "en":
            return ScoreName(known.name, known.unit if known.per else "")
        if key not in self.scores:
            raise wrong_value(
                _file(self.code),
                f"scores.{key}",
                f"no text in Chinese yet; translate {known.name}",
            )
        return self.scores[key]


def _file(code: str) -> Path:
    return Path(__file__).parent / "templates" / f"language.{code}.yaml"


def _read(code: str) -> Locale:
    return convert(read_yaml(_file(code)), Locale, _file(code))


CHINESE, ENGLISH = _read("zh"), _read("en")
LANGUAGES = {language.code: language for language in (ENGLISH, CHINESE)}
"""The languages by their codes."""


class Words(Struct, frozen=True, forbid_unknown_fields=True):
    """A text in Chinese and in English, which may be left out if it is the same."""

    zh: Text
    en: str = ""

    def text(self, language: Locale) -> str:
        return self.zh if language.code == "zh" else self.en or self.zh
