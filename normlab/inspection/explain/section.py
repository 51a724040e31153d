"""What an explanation consists of: sections, and properties to compare."""

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
    """The sections about a norm or a placement, and its properties, which are compared by name."""

    name: str
    sections: list[Section]
    properties: dict[str, str]
