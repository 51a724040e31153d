"""The English that every Python carries: help topics and the docstrings of the standard library.

Decides what a document is (a topic of `pydoc`, or a module with its docstrings in the order of
their lines), that no text stands in two documents, and which split a document belongs to. Source
files are parsed, never imported: nothing of theirs runs.
"""

import ast
import hashlib
import pkgutil
import platform
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from inspect import cleandoc
from pathlib import Path

from normlab.data.documents.corpus import Document, DocumentCorpus, by_hash, rules_digest, splitter
from normlab.data.documents.prose import prose

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_TESTS = ("test", "tests", "idle_test")


class PydocCorpus(DocumentCorpus):
    """Documentation of the Python that runs, about 3 in 4 of its sentences (see `prose`).

    A paragraph that an earlier document has is left out of the later one (topics quote each
    other). A document's split is decided by a hash of its name, so it stays where it is in the next
    Python. `valid_share` and `test_share` are the parts that are held out, about.
    """

    name = "pydoc"
    licence = "Python Software Foundation License Version 2"
    language = "en"

    def __init__(
        self, *, data_dir: str | None = None, valid_share: float = 0.1, test_share: float = 0.1
    ) -> None:
        if data_dir is not None:
            raise ValueError(
                f"data_dir={data_dir} is not read: the corpus is Python's own documentation. For "
                "your own text add task/corpus=documents; normlab list task/corpus lists all"
            )
        self.label = f"documentation of Python {platform.python_version()}"
        self._valid_share, self._test_share = valid_share, test_share

    def splits(self) -> dict[str, list[Document]]:
        """Return the splits; those of one Python are the same in every process."""
        return by_hash(self._read[0], valid_share=self._valid_share, test_share=self._test_share)

    def key(self) -> str:
        """Return a string of the Python, its sources, and the rules that cut them."""
        digest = hashlib.sha256(f"{self._valid_share} {self._test_share}".encode())
        for path in _sources().values():
            digest.update(path.read_bytes())
        rules = rules_digest("builtin", "prose")
        return f"pydoc-{platform.python_version()}-{digest.hexdigest()}-{rules}-{splitter()}"

    def describe(self) -> dict[str, object]:
        """Add the Python version and the library that splits sentences."""
        python = f"{platform.python_implementation()} {platform.python_version()}"
        return {
            **super().describe(),
            "python": python,
            "sentences_by": splitter(),
            "valid_share": self._valid_share,
            "test_share": self._test_share,
        }

    def left_out(self) -> dict[str, int]:
        """Return how many code blocks, sentences and repeated paragraphs are not in the corpus."""
        return dict(self._read[1])

    @cached_property
    def _read(self) -> tuple[list[Document], Counter[str]]:
        counts: Counter[str] = Counter(code_block=0, not_a_sentence=0, repeated_paragraph=0)
        seen: set[tuple[str, ...]] = set()
        documents: list[Document] = []
        for name, texts in _texts():
            sentences: list[str] = []
            for text in texts:
                for paragraph in map(tuple, prose(text, counts)):
                    if paragraph in seen:
                        counts["repeated_paragraph"] += 1
                    else:
                        seen.add(paragraph)
                        sentences.extend(paragraph)
            if sentences:
                documents.append(Document(name, tuple(sentences)))
        return documents, counts


def _texts() -> Iterator[tuple[str, list[str]]]:
    """Yield each document's name and its texts: the topics, then the modules, by name."""
    from pydoc_data.topics import topics

    for topic in sorted(topics):
        yield f"topic {topic}", [topics[topic]]
    for module, path in _sources().items():
        yield f"module {module}", _docstrings(path)


def _sources() -> dict[str, Path]:
    """Return the source files of the standard library by module, tests left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = dict(_modules(root, "", sys.stdlib_module_names))
    return dict(sorted(found.items()))


def _modules(folder: Path, prefix: str, names: frozenset[str]) -> Iterator[tuple[str, Path]]:
    for module in pkgutil.iter_modules([str(folder)]):
        if (not prefix and module.name not in names) or module.name in _TESTS:
            continue
        path = folder / (f"{module.name}/__init__.py" if module.ispkg else f"{module.name}.py")
        # The topics stand on their own; a compiled module has no source to read.
        if path.is_file() and path.parent.name != "pydoc_data":
            yield prefix + module.name, path
        if module.ispkg:
            yield from _modules(folder / module.name, f"{prefix}{module.name}.", names)


def _docstrings(path: Path) -> list[str]:
    """Return the docstrings of a source file in the order of their lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes, which are not ours to mend
        tree = ast.parse(path.read_bytes())
    nodes = [node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))
    texts = (ast.get_docstring(node, clean=False) for node in nodes)
    return [cleandoc(text) for text in texts if text]
