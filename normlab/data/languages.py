"""Looks up languages by code: `zh`, `zho_Hans`, `cmn` and `zh-CN` all mean the same language."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice
from typing import Literal, NamedTuple

from langcodes import Language as Tag
from langcodes import standardize_tag, tag_is_valid
from langcodes.tag_parser import LanguageTagError

from normlab.errors import UserError

_CHINESE = ("Hans", "Hant", "Hani", "Hanb", "Bopo")
_KOREAN = ("Kore", "Hang", "Jamo")
# Scripts whose words sacreBLEU cannot split at spaces, by the first words of their characters'
# names: scripts without spaces between words (Chinese, Japanese, Tibetan, Javanese, Balinese and
# the scripts of mainland Southeast Asia), and Korean, which writes particles as part of a word.
_NOT_SPLIT_AT_SPACES = {
    **dict.fromkeys(_CHINESE, ("CJK", "BOPOMOFO")),
    **dict.fromkeys(("Jpan", "Hira", "Kana", "Hrkt"), ("HIRAGANA", "KATAKANA", "CJK")),
    **dict.fromkeys(_KOREAN, ("HANGUL", "CJK")),
    **{"Thai": ("THAI",), "Laoo": ("LAO",), "Khmr": ("KHMER",), "Mymr": ("MYANMAR",)},
    **{"Tibt": ("TIBETAN",), "Java": ("JAVANESE",), "Bali": ("BALINESE",)},
    **{"Lana": ("TAI",), "Tale": ("TAI",), "Tavt": ("TAI",), "Talu": ("NEW",)},  # e.g. "TAI LE"
}
# A text's script is inferred from its first `_SAMPLE` characters if `_FEWEST` or more are letters.
_SAMPLE, _FEWEST = 20_000, 20
_NO_LANGUAGE = ("und", "mul", "mis", "zxx")  # undetermined, several, uncoded, no language


class Language(NamedTuple):
    """A language.

    `code` is its shortest ISO 639 code, or its macrolanguage's code if there is one (`zh` for
    `cmn`). `script` is the ISO 15924 code of its script, which is the language's usual script
    unless the user's code names a different one (`Cyrl` for `sr`, `Latn` for `sr_Latn`).
    """

    code: str
    script: str

    @property
    def spaced(self) -> bool:
        """Whether spaces separate words."""
        return self.script not in _NOT_SPLIT_AT_SPACES or self.script in _KOREAN

    @property
    def bleu_tokenizer(self) -> Literal["13a", "zh", "char"]:
        """The sacreBLEU tokenizer for text in this language's script.

        `zh` splits Chinese characters, `char` splits all characters, and `13a` splits at spaces and
        punctuation.
        """
        if self.script in _CHINESE:
            return "zh"
        return "char" if self.script in _NOT_SPLIT_AT_SPACES else "13a"


def language_of(code: str, key: str) -> Language:
    """Return the language for a code in the style of BCP 47, such as `pt`, `pt_BR` or `zho_Hans`.

    A region does not change the language. Raises UserError if the code is unknown; the error names
    the config key `key`.
    """
    try:
        tag = Tag.get(standardize_tag(code, macro=True)).maximize() if tag_is_valid(code) else None
    except LanguageTagError:
        tag = None
    if tag is None or code.lower() in _NO_LANGUAGE:
        raise UserError(
            f"{key}={code} is not a language code: use a code of ISO 639, such as de, "
            f"zh or sr_Latn{_language_hint(code)}"
        )
    return Language(str(tag.language), str(tag.script))


def check_script(lines: Sequence[str], language: Language, name: str) -> None:
    """Raise UserError if a text is not in its language's script and would be split wrongly.

    This catches swapped files, and the code `kr`, which means Kanuri and not Korean. Scripts with
    spaces between words are not told apart, because they are all split in the same way.
    """
    sample = "".join(islice(chain.from_iterable(lines), _SAMPLE))
    words = Counter(unicodedata.name(x, "").split(" ")[0] for x in sample if x.isalpha())
    expected = _NOT_SPLIT_AT_SPACES.get(language.script, ())
    special = {word for names in _NOT_SPLIT_AT_SPACES.values() for word in names}
    wrong = {word for word in words if (word in special or expected) and word not in expected}
    if words.total() >= _FEWEST and sum(words[word] for word in wrong) > words.total() / 2:
        most = max(wrong, key=words.__getitem__)
        raise UserError(
            f"{name} is written in {most.title()}, but the language {language.code} in "
            f"{language.script}: swap the two files' names, or change task.corpus.source_language "
            "or target_language and the names"
        )


def _language_hint(code: str) -> str:
    """Return a hint for the error if the code is a country code, such as `cn` instead of `zh`."""
    if not re.fullmatch("[A-Za-z]{2}", code):
        return ""
    language = Tag.make(territory=code.upper()).maximize().language
    return "" if language in (None, "und", "en") else f". Did you mean {language}?"
