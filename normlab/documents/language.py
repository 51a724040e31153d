"""The two languages of the articles' tables: the Chinese original, and English."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from normlab.claims.chinese import data_in_chinese
from normlab.claims.endpoint import Text


@dataclass(frozen=True)
class Locale:
    """The words around the articles' own, in one language, and the code of the language.

    `verdicts` has a phrase for each verdict of a part, and one for parts that differ; `data_name`
    translates a study's name for its data; texts with braces are formats.
    """

    code: str
    verdicts: Mapping[str, str]
    article: str
    measured: str
    seeds: str
    trains: str
    reached: str
    never: str
    untrained: str
    lower: str
    higher: str
    caption: str
    about: str
    measurement: str
    between: str
    comma: str
    margin: str
    inside: str
    stop: str
    legend: str
    cells: str
    no_tables: str
    play: str
    ends: tuple[str, str]
    data_name: Callable[[str], str] = str


ENGLISH = Locale(
    code="en",
    verdicts={
        "supported": "holds",
        "contradicted": "does not hold",
        "no difference": "does not hold, too small a difference",
        "undecided": "open",
        "not measured": "not tested",
        "mixed": "holds in part",
    },
    article="article",
    measured="measured",
    seeds="{n} seeds",
    trains="{n} of {of} train",
    reached="reached in {n} of {of} runs",
    never="not reached",
    untrained="not clearly better than the untrained baseline",
    lower="{} lower",
    higher="{} higher",
    caption="{title} (article {id}, section {section})",
    about="{}: {}",
    measurement=" Measured: {}.",
    between="; ",
    comma=", ",
    margin="margin {limits}",
    inside="within the margin {limits}, too small to count",
    stop=".",
    legend=(
        "[2.1] is part 1 of claim 2 (normlab claims 2), other words in brackets are computed "
        "checks; --notes prints what each says, and what was found."
    ),
    cells=(
        "In each cell the article's words, and under them what was measured; [2.1] is part 1 of "
        "claim 2, and other words in brackets are computed checks."
    ),
    no_tables=(
        'article {id} has no tables; its claims: normlab claims "article {id}"; sentence by '
        "sentence: normlab documents --html"
    ),
    play="Sentence by sentence, with examples to play with: normlab documents --html",
    ends=(" (", ")"),
)
CHINESE = Locale(
    code="zh",
    verdicts={
        "supported": "成立",
        "contradicted": "不成立",
        "no difference": "不成立，差别太小",
        "undecided": "尚无定论",
        "not measured": "未检验",
        "mixed": "部分成立",
    },
    article="原文",
    measured="实测",
    seeds="{n} 个种子",
    trains="{of} 次训练成功 {n} 次",
    reached="{of} 次中有 {n} 次达到",
    never="未达到",
    untrained="不明显好于未训练的基线",
    lower="低 {}",
    higher="高 {}",
    caption="{title}（文章 {id}，第 {section} 节）",
    about="{}：{}",
    measurement="实测：{}。",
    between="；",
    comma="，",
    margin="界限 {limits}",
    inside="在界限 {limits} 之内，差别太小，不算数",
    stop="。",
    legend=(
        "[2.1] 指论断 2 的第 1 部分（normlab claims 2），方括号中的单词是计算检查；"
        "--notes 逐条列出内容和结果。"
    ),
    cells="每格上方是原文，下方是实测；[2.1] 指论断 2 的第 1 部分，方括号中的单词是计算检查。",
    no_tables=(
        '文章 {id} 没有表格；它的论断：normlab claims "article {id}"；逐句检验：'
        "normlab documents --html"
    ),
    play="逐句检验，附可以动手的例子：normlab documents --html",
    ends=("（", "）"),
    data_name=data_in_chinese,
)


LANGUAGES = {language.code: language for language in (ENGLISH, CHINESE)}
"""The languages by their codes."""


class Words(Struct, frozen=True, forbid_unknown_fields=True):
    """A text in Chinese and in English, which may be left out if it is the same."""

    zh: Text
    en: str = ""

    def text(self, language: Locale) -> str:
        return self.zh if language.code == "zh" else self.en or self.zh
