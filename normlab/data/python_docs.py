"""English text from Python itself: help topics and docstrings of the standard library.

A document is a help topic of `pydoc`, or all docstrings of a module in source order. Source files
are parsed, never imported. Blocks of code, tables and grammars are left out, and markup is removed.
Of the rest, only whole English sentences are kept (see `is_sentence`).
"""

import ast
import hashlib
import platform
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from normlab.data.documents import RULES, DocumentCorpus, split_by_hash, split_sentences
from normlab.errors import UserError

MIN_WORDS = 4
MIN_SHARE = 0.75

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_TESTS = {"test", "tests", "idle_test"}
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


@dataclass(kw_only=True, eq=False)
class PydocCorpus(DocumentCorpus):
    """The documentation of the Python version that is running.

    `prose` keeps about 3 in 4 of its sentences. A paragraph that occurs in several documents is
    kept only in the first, because help topics quote each other. A hash of a document's name
    decides its split, so the split is the same in every Python version. `valid_share` and
    `test_share` are the approximate fractions of documents held out.
    """

    data_dir: str | None = None
    valid_share: float = 0.1
    test_share: float = 0.1
    name = "pydoc"
    label = f"documentation of Python {platform.python_version()}"
    licence = "Python Software Foundation License Version 2"
    language = "en"

    def __post_init__(self) -> None:
        if self.data_dir is not None:
            raise UserError(
                f"data_dir={self.data_dir} has no effect on Python's documentation; use "
                "task/corpus=documents for your own text"
            )

    def files(self) -> Mapping[str, Path]:
        return {}  # hundreds of files; instead, `label_here` is compared

    def label_here(self) -> str:
        return self.label

    def key(self) -> str:
        digest = hashlib.sha256(f"{self.label} {self.valid_share} {self.test_share}".encode())
        for path in _sources().values():
            digest.update(path.read_bytes())
        return f"{digest.hexdigest()} {RULES}"

    def documents(self) -> Iterator[tuple[str, Sequence[str]]]:
        written: set[tuple[str, ...]] = set()
        for name, texts in _texts():
            sentences: list[str] = []
            for paragraph in (
                tuple(paragraph_sentences) for text in texts for paragraph_sentences in prose(text)
            ):
                if paragraph not in written:
                    sentences += paragraph
                written.add(paragraph)
            if sentences:
                yield split_by_hash(name, self.valid_share, self.test_share), sentences


def _texts() -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the texts of each document, first help topics and then modules."""
    from pydoc_data.topics import topics

    for topic in sorted(topics):
        yield f"topic {topic}", [topics[topic]]
    for module, path in _sources().items():
        yield f"module {module}", _docstrings(path)


def _sources() -> dict[str, Path]:
    """Return the source files of the standard library, except its tests, keyed by module."""
    root = Path(sysconfig.get_paths()["stdlib"])
    sources: dict[str, Path] = {}
    for name in sys.stdlib_module_names - {"pydoc_data"}:  # topics are read separately
        for path in (root / f"{name}.py", *(root / name).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if path.is_file() and not {*parts} & _TESTS:
                sources[".".join(parts).removesuffix(".__init__")] = path
    return dict(sorted(sources.items()))


def _docstrings(path: Path) -> list[str]:
    """Return the docstrings of a source file in source order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the standard library
        tree = ast.parse(path.read_bytes())
    nodes = [node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))
    return [text for text in map(ast.get_docstring, nodes) if text]


def prose(text: str) -> Iterator[list[str]]:
    """Yield the paragraphs of a text, each as a list of clean sentences."""
    for paragraph in _paragraphs(text):
        plain = _MARKUP.sub(r"\2", _MARKUP.sub(r"\2", _ROLE.sub("", paragraph)))
        if sentences := [x for x in split_sentences(plain, language="en") if is_sentence(x)]:
            yield sentences


def is_sentence(text: str) -> bool:
    """Return whether a line is an English sentence rather than a heading, a fragment or code.

    A sentence has at least `MIN_WORDS` words, a fraction `MIN_SHARE` of them plain, and no sign
    of code.
    """
    if not (_BEGIN.match(text) and _END.search(text)) or _CODE.search(text):
        return False
    words = text.split()
    plain = sum(_PLAIN.fullmatch(word) is not None for word in words)
    return len(words) >= MIN_WORDS and plain >= MIN_SHARE * len(words)


def _paragraphs(text: str) -> Iterator[str]:
    """Cut text into paragraphs, leaving out blocks of code."""
    literal: int | None = None  # indentation above which a block is code
    for block in re.split(r"\n[ \t]*\n", text.expandtabs()):
        lines = [line for line in block.split("\n") if line.strip()]
        if not lines or (literal is not None and _indent(lines[0]) > literal):
            continue
        literal = _indent(lines[0]) if lines[-1].rstrip().endswith("::") else None
        if not any(_CODE_LINE.search(line) for line in lines):
            yield from _items(lines)


def _items(lines: list[str]) -> Iterator[str]:
    """Cut the lines of a block into paragraphs, at list items and changes of indentation."""
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
