"""The parts of an explanation that `normlab explain` prints."""

from collections.abc import Sequence
from typing import NamedTuple

from normlab.findings.finding import NO_TABLE, AnswerTable


class Section(NamedTuple):
    """A section of the output: a title, a paragraph, the lines of a drawing, and a table."""

    title: str
    text: str
    drawing: Sequence[str] = ()
    table: AnswerTable = NO_TABLE


class OptionExplanation(NamedTuple):
    """The sections about a norm or a placement, and its properties by name, for a comparison."""

    name: str
    sections: list[Section]
    properties: dict[str, str]
