"""The values behind a decision, each with the name of its side in Chinese and in English."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby

import yaml
from msgspec import Struct

from normlab.claims.where import Where, words_of

Name = tuple[str, str]
"""A name in Chinese and in English."""
_NOT_SET = object()


@dataclass(frozen=True)
class Side:
    """One of the settings that an endpoint compares, with its `label` and its name for readers.

    The sides of an interaction also have a `condition`, which is the name of the setting in which
    two of them are compared.
    """

    label: str
    name: Name
    condition: Name | None = None

    @property
    def full_name(self) -> Name:
        """The name, preceded by the condition if there is one."""
        if self.condition is None:
            return self.name
        (zh, en), (chinese, english) = self.condition, self.name
        return f"{zh}，{chinese}", f"{en}, {english}"


class SideValue(Struct, frozen=True, omit_defaults=True):
    """The value of a side.

    `least` is the lower end, in %, of the 95 % interval of the share of seeds that train.
    """

    name: Name
    value: str
    least: int | None = None
    condition: Name | None = None

    def text(self, *, chinese: bool) -> str:
        """Return the value with its side, such as `34.8 with layer norm`, or `层归一化 34.8`."""
        if chinese:
            gap = "" if self.name[0].endswith("）") else " "
            least = "" if self.least is None else f"（95% 区间 ≥ {self.least}%）"
            return f"{self.name[0]}{gap}{self.value}{least}"
        least = "" if self.least is None else f" (95 % CI: ≥ {self.least} %)"
        return f"{self.value} with {self.name[1]}{least}"


def spaced(texts: Iterable[str]) -> str:
    """Join Chinese texts, with a space where a Latin letter or digit meets a Chinese character."""
    joined = ""
    for text in filter(None, texts):
        ends = joined[-1:] + text[:1]
        mixed = ends.isalnum() and len({each.isascii() for each in ends}) == 2
        joined += f" {text}" if mixed else text
    return joined


def sides_text(sides: Iterable[SideValue], *, chinese: bool = False) -> str:
    """Return the values with their sides in one line, in the order of the statement."""
    comma, colon, semicolon = ("，", "：", "；") if chinese else (", ", ": ", "; ")
    groups: list[str] = []
    for condition, members in groupby(sides, lambda side: side.condition):
        values = comma.join(side.text(chinese=chinese) for side in members)
        groups.append(f"{condition[not chinese]}{colon}{values}" if condition else values)
    return semicolon.join(groups)


def names_of(sides: Sequence[Where], study: str = "") -> list[Name]:
    """Return a name for each setting, made from the first key in which the settings differ.

    A single setting's name is made from all its keys. Some names depend on the `study`.
    """
    if len(sides) == 1:
        return [name_of(sides[0], study)]
    all_keys = dict.fromkeys(key for side in sides for key in side)
    differing = [key for key in all_keys if len({side.get(key, _NOT_SET) for side in sides}) > 1]
    return [name_of({key: side.get(key) for key in differing[:1]}, study) for side in sides]


def name_of(where: Where, study: str = "") -> Name:
    """Return the name of a setting. A value without a name is shown as `key=value`."""
    known = _names()
    names = [
        known.get(f"{word} in {study}") or known.get(word, (word, word)) for word in words_of(where)
    ]
    return "，".join(zh for zh, _ in names), ", ".join(en for _, en in names)


@cache
def _names() -> Mapping[str, Name]:
    path = files("normlab.claims") / "templates" / "side_names.yaml"
    return {key: (zh, en) for key, (zh, en) in yaml.safe_load(path.read_text("utf-8")).items()}
