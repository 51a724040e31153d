"""English sentences of Python's documentation: what of a docstring or help topic is prose.

Decides, block by block (a block stands between blank lines), then sentence by sentence:

- a block that is code, a table or a grammar is left out: it holds a prompt (`>>>`), a rule of
  `*`, `=`, `-` or `+`, a `|` or a `::=`; a block that is further in than one that ended in `::`;
- a list item, or a line that is further in or out than the one before, begins a paragraph;
- markup goes: `*x*`, ``x``, `:role:` and the marks of list items;
- a sentence stays if it begins with a capital letter, ends in `.`, `!` or `?`, has `MIN_WORDS`
  words or more, at least `MIN_SHARE` of them plain English words, and no sign of code;
- the rest is left out and counted.
"""

import re
from collections import Counter
from collections.abc import Iterator

from normlab.data.documents.corpus import split_sentences

MIN_WORDS = 4
MIN_SHARE = 0.75

_CODE_LINE = re.compile(r">>>|\.\.\. |::=|\||[-+=*~^_.#]{4,}|^\s*[$%] ")
_ITEM = re.compile(r"(?:[-*+o]|\(?\d{1,2}[.)]|\(?[a-z][.)])\s+(?=\S)")
_ROLE = re.compile(r":[a-z:]+:(?=`)")
_MARKUP = re.compile(r"(``|`|\*\*|\*)(?=\S)([^`*]*?\S)\1(?![A-Za-z0-9_])")
_BEGIN = re.compile(r"[\"'(]{0,2}[A-Z]")
_END = re.compile(r"[^.:][.!?][\"')]{0,2}$")
_PLAIN = re.compile(r"[\"'(]{0,2}[A-Za-z]+(?:[-'/][A-Za-z]+)*[\"')]{0,2}[,;:.!?]?[\"')]{0,2}")
_CODE = re.compile(
    r"[={}\\<>|@$#~^\[\]]|->|::|(?<! )--|--(?! )|\.\.|\w\(\w+[,=]|[\"'][\"']{2}|[`*]"
)


def prose(text: str, counts: Counter[str]) -> list[list[str]]:
    """Return the paragraphs of clean sentences of a text; `counts` gains what was left out."""
    paragraphs: list[list[str]] = []
    for paragraph in _paragraphs(text, counts):
        kept: list[str] = []
        for sentence in split_sentences(_plain(paragraph), language="en"):
            if is_sentence(sentence):
                kept.append(sentence)
            else:
                counts["not_a_sentence"] += 1
        if kept:
            paragraphs.append(kept)
    return paragraphs


def is_sentence(text: str) -> bool:
    """Tell whether a line is an English sentence rather than a heading, a fragment or code."""
    if not (_BEGIN.match(text) and _END.search(text)) or _CODE.search(text):
        return False
    words = text.split()
    plain = sum(_PLAIN.fullmatch(word) is not None for word in words)
    return len(words) >= MIN_WORDS and plain >= MIN_SHARE * len(words)


def _paragraphs(text: str, counts: Counter[str]) -> Iterator[str]:
    """Cut text into paragraphs, leaving out blocks of code."""
    literal: int | None = None  # a block further in than this is code
    for block in re.split(r"\n[ \t]*\n", text.expandtabs()):
        lines = [line for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        if literal is not None and _indent(lines[0]) > literal:
            counts["code_block"] += 1
            continue
        literal = _indent(lines[0]) if lines[-1].rstrip().endswith("::") else None
        if any(_CODE_LINE.search(line) for line in lines):
            counts["code_block"] += 1
            continue
        yield from _items(lines)


def _items(lines: list[str]) -> Iterator[str]:
    """Cut the lines of a block at list items and at changes of the indentation."""
    current: list[str] = []
    column = -1
    for line in lines:
        indent = _indent(line)
        item = _ITEM.match(line, indent)
        if item or (indent != column and column >= 0):
            yield " ".join(current)
            current = []
        column = item.end() if item else indent
        current.append(line[column:].strip())
    yield " ".join(current)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _plain(text: str) -> str:
    """Take the marks of reStructuredText off the words that they mark."""
    return _MARKUP.sub(r"\2", _MARKUP.sub(r"\2", _ROLE.sub("", text)))
