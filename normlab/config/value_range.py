"""Ranges of values, in words and as types, and the ranges that many keys share."""

import sys
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, inspect


class Range(NamedTuple):
    """The values that a key may have: as words that follow `must be`, and as a type for msgspec."""

    allowed: str
    kind: Any

    def has(self, value: object) -> bool:
        """Return whether a value is in the range."""
        try:
            msgspec.convert(value, self.kind)
        except msgspec.ValidationError:
            return False
        return True

    @property
    def is_number(self) -> bool:
        return any(isinstance(each, inspect.IntType | inspect.FloatType) for each in self._types)

    @property
    def is_only_numbers(self) -> bool:
        """Whether no word such as `epoch` is allowed beside numbers."""
        return all(isinstance(each, inspect.IntType | inspect.FloatType) for each in self._types)

    @property
    def is_text(self) -> bool:
        """Whether free text is allowed, as opposed to a choice of words."""
        return any(isinstance(each, inspect.StrType) for each in self._types)

    @property
    def is_list_of_texts(self) -> bool:
        lists = [each for each in self._types if isinstance(each, inspect.ListType)]
        return any(isinstance(each.item_type, inspect.StrType) for each in lists)

    @property
    def _types(self) -> tuple[inspect.Type, ...]:
        """The types of values, several for a union such as `int | Literal["epoch"]`."""
        whole = inspect.type_info(self.kind)
        return whole.types if isinstance(whole, inspect.UnionType) else (whole,)


_MOST = sys.float_info.max  # leaves out infinity


def number(kind: type[int | float] = float, **ends: Any) -> Range:
    """Return a range of numbers. The bounds are arguments of `msgspec.Meta`, such as `ge=0`."""
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    text = " and ".join(f"{words[end]} {value:.15g}" for end, value in ends.items())
    if not {"le", "lt"} & ends.keys():
        ends["le"] = 2**62 if kind is int else _MOST
    return Range(f"{text}{', a whole number' * (kind is int)}", Annotated[kind, Meta(**ends)])


def list_of(kind: str, each: Range, length: int | None = None) -> Range:
    """Return the range of lists whose elements are in the range `each`.

    `kind` is a noun for the elements. With `length`, lists must have this number of elements.
    """
    sized = Meta(min_length=length, max_length=length)
    return Range(f"a list of {kind}, each {each.allowed}", Annotated[list[each.kind], sized])


def one_of(words: type[Enum]) -> Range:
    """Return the range that consists of the names of an enumeration."""
    names = tuple(words.__members__)
    return Range(", ".join(names), Literal[names])


COUNT, FROM_NONE, FROM_TWO = number(int, gt=0), number(int, ge=0), number(int, ge=2)
POSITIVE, NOT_NEGATIVE = number(gt=0), number(ge=0)
SHARE, ABOVE_NONE, BELOW_ONE = number(ge=0, le=1), number(gt=0, le=1), number(ge=0, lt=1)
COUNT_OR_EPOCH = Range(f"{COUNT.allowed}, or epoch", COUNT.kind | Literal["epoch"])
NUMBERS = Range("a list of numbers", list[Annotated[float, Meta(ge=-_MOST, le=_MOST)]])
# W&B's rules for projects and tags.
PROJECT = Range(
    "1 to 128 characters without / \\ # ? % :",
    Annotated[str, Meta(min_length=1, max_length=128, pattern=r"\A[^/\\#?%:\x00-\x1f]+\Z")],
)
TAGS = Range(
    "a list of tags, each 1 to 64 characters on one line",
    list[Annotated[str, Meta(min_length=1, max_length=64, pattern=r"\A[^\x00-\x1f]+\Z")]],
)
TRUE_OR_FALSE = Range("true, false", bool)
TEXT = Range("text", str)
LINES = Range("text on one or several lines", str)
NAME = Range(
    "1 to 80 letters, digits, '-', '_' or '.', not starting with '.' or '-'",
    Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,79}\Z")],
)
# In a run's config, it is a mapping with the folder and the checksum of the weights.
PATH = Range("a path that is not empty", Annotated[str, Meta(min_length=1)])
RUN = Range("the folder or the name of a run", Annotated[str, Meta(min_length=1)] | dict[str, str])
FACTOR = Range("above 0", Annotated[float, Meta(gt=0)] | Literal["inf"])  # "inf" as in records
SEED = number(int, ge=0, le=10**12)
NOISES = list_of("numbers", number(gt=0, le=100))
