"""When two runs were made by the same code: the files that a run uses, each with its hash.

A run uses its root, `normlab/run.py`, the files of all `_target_`s of its config, its probes among
them, and what these import from the package, functions included. Sinks and what only shows results
are left out. So a norm that is added, or one that a run does not have, makes no run another.

Imports are read from the sources, by absolute name; nothing is imported. What a type checker alone
reads does not count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOT = "normlab.run"
# What only shows, lists or describes results cannot change one, nor can what composes a config,
# whose values are the experiment, or says where a record lies.
_CANNOT_MOVE_A_RESULT = (
    *("commands/", "reports/", "claims/", "checks/", "health/", "explain/", "bench/", "card/"),
    "studies/",
    *("cli.py", "config.py", "machine.py", "notebook.py", "recipes.py", "registry.py"),
    *("choices.py", "complete.py", "export.py", "near.py", "progress.py", "start.py", "wiring.py"),
    *(f"metrics/{name}.py" for name in ("floors", "glossary", "spread", "statistics")),
    "sweep.py",
    "train/sinks/",
    *(f"records/{name}.py" for name in ("aggregate", "alike", "arithmetic", "atomic", "code")),
    "records/depth.py",
    *(f"records/{name}.py" for name in ("fingerprint", "labels", "migration", "node", "rows")),
    *(f"records/{name}.py" for name in ("selection", "store", "text")),
)
_NOT_THE_EXPERIMENT = ("choices", "sink")  # keys of a config
_LENGTH = 10
_NAMED = 5  # files of a remark


def code_of(config: Mapping[str, Any], package: Path = _PACKAGE) -> dict[str, Any]:
    """Return what a record says of the code of a run of this config.

    `code_files` maps the paths of its files below the package to 10 hex digits of SHA-256, and
    `code` is the hash of all of them.
    """
    files = _files((_ROOT, *sorted(set(_targets(config)))), package)
    return {"code": _hash_of(files), "code_files": files}


def code_hash(package: Path = _PACKAGE) -> str:
    """Hash all files of the package that can move a result, for what is no run of one config."""
    paths = (path.relative_to(package).as_posix() for path in sorted(package.rglob("*.py")))
    return _hash_of({path: _read(package, path).digest for path in paths if _counts(path)})


def same_code(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Tell of two environments of records whether all files that both runs use are alike.

    One without `code_files` has the hash of a whole package as its `code`, which must be alike.
    """
    if not (a.get("code_files") and b.get("code_files")):
        return a.get("code") == b.get("code")
    return not changed_files(a, b)


def changed_files(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Name the files that two runs both use and that are not alike, by their environments."""
    first: Mapping[str, str] = a.get("code_files") or {}
    second: Mapping[str, str] = b.get("code_files") or {}
    return sorted(path for path in first.keys() & second.keys() if first[path] != second[path])


def code_differences(environments: Iterable[Mapping[str, Any]]) -> list[str] | None:
    """Name the files that runs use in several states; None where all were made by the same code.

    Empty where runs name no files and their hashes differ.
    """
    first: dict[str, str] = {}
    changed: set[str] = set()
    wholes: set[object] = set()
    for environment in environments:
        files: Mapping[str, str] = environment.get("code_files") or {}
        wholes.add(None if files else environment.get("code"))
        changed |= {path for path, now in files.items() if first.setdefault(path, now) != now}
    return sorted(changed) if changed or len(wholes) > 1 else None


def code_remark(environments: Iterable[Mapping[str, Any]]) -> str | None:
    """Say that runs were made by different states of the code, and name the first files."""
    changed = code_differences(environments)
    if changed is None:
        return None
    named = changed[:_NAMED] + ([f"{len(changed) - _NAMED} more"] if changed[_NAMED:] else [])
    return f"made by different states of the code{': ' if named else ''}{', '.join(named)}"


class _Source:
    """One file: the hash of its text, and the names that it imports from the package."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self.digest = hashlib.sha256(text).hexdigest()[:_LENGTH]

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """Return the dotted names below `normlab` that it imports."""
        return tuple(sorted(set(_imports(ast.parse(self._text).body))))


def _files(names: tuple[str, ...], package: Path) -> dict[str, str]:
    """Return the hashes of the files that some modules use, these included, by their paths."""
    found: dict[str, str] = {}
    waiting = list(names)
    asked: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in asked:
            continue
        asked.add(name)
        for path in _paths(name, package):
            if path not in found and _counts(path):
                source = _read(package, path)
                found[path] = source.digest
                waiting += source.imports
    return dict(sorted(found.items()))


def _paths(name: str, package: Path) -> Iterator[str]:
    """Find the files that are loaded for a dotted name: its module's, and those of its packages."""
    folder = ""
    yield "__init__.py"
    for part in name.split(".")[1:]:
        if (package / f"{folder}{part}.py").is_file():
            yield f"{folder}{part}.py"
            return
        folder += f"{part}/"
        if not (package / folder / "__init__.py").is_file():  # a name in the package above
            return
        yield f"{folder}__init__.py"


def _counts(path: str) -> bool:
    return not path.startswith(_CANNOT_MOVE_A_RESULT)


def _hash_of(files: Mapping[str, str]) -> str:
    text = "".join(f"{path}\0{digest}\n" for path, digest in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def _read(package: Path, path: str) -> _Source:
    file = package / path
    status = file.stat()
    return _parsed(file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1024)
def _parsed(file: Path, changed: int, size: int) -> _Source:
    del changed, size  # another file under the same name
    return _Source(file.read_bytes())


def _targets(node: object) -> Iterator[str]:
    """Find the names of the objects that a run of a config builds."""
    if isinstance(node, list):
        for item in cast("list[object]", node):
            yield from _targets(item)
    elif isinstance(node, Mapping):
        for key, value in cast("Mapping[str, object]", node).items():
            if key == "_target_" and str(value).startswith("normlab."):
                yield str(value)
            elif key not in _NOT_THE_EXPERIMENT:
                yield from _targets(value)


def _imports(body: Iterable[ast.AST]) -> Iterator[str]:
    """Find the dotted names of the package that statements import, those inside them included."""
    for node in body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            yield from _imports(_inside(node))
            continue
        yield from (name for name in names if name.split(".")[0] == "normlab")


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Return the statements inside one; an expression has none."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield from node.orelse
        return
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        inside = getattr(node, field, None)
        if isinstance(inside, list):
            yield from cast("list[ast.AST]", inside)
