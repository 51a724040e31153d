"""The code that trained a run: its numerics, the user's norms, its commit, and whether it is clean.

A run that is resumed, or that starts from another run's weights, may be trained by several versions
of the code. Its checkpoints list all versions, and its record counts as clean only if all of them
are clean.

`NUMERICS` is the version of normlab's formulas: runs with different numerics are never paired.
Raise it if, and only if, a loss in `tests/golden` (short runs in float64) changes by more than a
relative 1e-6. A user's own norm has no golden losses, so its file is hashed instead, and so are the
files of normlab's norms, placements and other options that have uncommitted changes.
"""

import ast
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from normlab.config.folders import CONFIG_DIR, add_to_import_path, source_of
from normlab.config.registry import OPTION, TARGET, option_settings, path_of, sha256
from normlab.config.schema import NORM_KEYS, leaves
from normlab.errors import UserError

CHECKOUT = Path(__file__).resolve().parents[2]
_SOURCES = ("normlab", "configs", "pyproject.toml")  # the paths that results depend on
MadeBy = tuple[int | str, Mapping[str, str]]
"""The numerics of a run, and the files of the user's own or edited norms with their hashes."""


NUMERICS = 1


class Code(NamedTuple):
    """A state of the code. `commit` and `dirty` are None if they are unknown."""

    numerics: int | str
    own_norms: Mapping[str, str]
    commit: str | None
    dirty: bool | None


def checkout_state() -> tuple[str | None, bool | None]:
    """Return the commit, and whether code or configs differ from it.

    Both are None outside a checkout. New files that git does not ignore count as differences,
    because a norm that was never committed is uncommitted code.
    """
    if not (CHECKOUT / ".git").exists():
        return None, None
    try:
        return _git("rev-parse", "HEAD").strip(), bool(_status())
    except (OSError, subprocess.SubprocessError):
        return None, None


def uncommitted_files() -> set[Path]:
    """Return the code and config files that differ from the commit.

    The set is empty outside a checkout.
    """
    if not (CHECKOUT / ".git").exists():
        return set()
    try:
        return {CHECKOUT / line[3:] for line in _status().split("\0") if line}
    except (OSError, subprocess.SubprocessError):
        return set()


def _status() -> str:
    return _git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", *_SOURCES)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(CHECKOUT), *arguments]
    return subprocess.check_output(command, text=True, timeout=20, stderr=subprocess.DEVNULL)


def module_file(name: str) -> Path:
    """Return the path of a normlab module's file, which exists only if there is such a module."""
    return CHECKOUT.joinpath(*name.split(".")).with_suffix(".py")


def files_of_class(path: Path) -> list[Path]:
    """Return the file of a class and the files of its folder that it imports, recursively.

    If the file is outside normlab, the files of normlab that it imports are included.
    """
    files = [path]
    for file in files:
        for name in _imports(file):
            imported = module_file(name)
            near = imported.parent == file.parent or not file.is_relative_to(CHECKOUT / "normlab")
            if near and imported not in files and imported.is_file():
                files.append(imported)
    return files


def _imports(file: Path) -> Iterator[str]:
    """Yield the modules that a Python file imports at run time, not only for type checking."""
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def own_norms(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of the norms and other options of a run that are the user's or edited.

    The key is `mine` for a norm, and `placement/mine` for a placement. The value is the name and
    the hash of each file with a class, such as `mine.py 0a1b2c3d4e`. For normlab's own options,
    only files that the class needs and that have uncommitted changes are listed.
    """
    sites: Mapping[str, Any] = config.get("sites") or {}
    choices: Mapping[str, Any] = config.get("choices") or {}
    observe: Mapping[str, Any] = config.get("observe") or {}
    nodes: list[Mapping[str, Any]] = [
        node for node in [*map(config.get, NORM_KEYS), *sites.values()] if isinstance(node, Mapping)
    ]
    probes: Mapping[str, Any] = observe.get("probe") or {}
    chosen: set[tuple[str, Any]] = {*choices.items()} | {("probe", probe) for probe in probes}
    chosen |= {("norm", node[OPTION]) for node in nodes if OPTION in node}
    edited = uncommitted_files()
    digests: dict[str, str] = {}
    for group, name in sorted((str(group), str(name)) for group, name in chosen):
        path = path_of(group, name)
        if path is not None and (edited or not path.is_relative_to(CONFIG_DIR)):
            files = _files(group, path, edited)
            digests[name if group == "norm" else f"{group}/{name}"] = files
    return {name: files for name, files in digests.items() if files}


def _files(group: str, path: Path, edited: Collection[Path]) -> str:
    """Return the names and hashes of the files that define the classes of the option in `path`.

    Only files that the user wrote or edited are included.
    """
    is_own, settings = not path.is_relative_to(CONFIG_DIR), option_settings(group, path.stem, group)
    classes = [str(value) for key, value in leaves(settings) if TARGET in key]
    files: dict[Path, None] = {}
    add_to_import_path()
    for one in classes:
        of_normlab = one.startswith("normlab.")
        if not of_normlab and not is_own:
            continue  # a class of torch
        source = module_file(one.rpartition(".")[0]) if of_normlab else _source(path, one)
        needed = files_of_class(source) if edited else [source]
        files |= dict.fromkeys(
            file for file in needed if file in edited or (file == source and not of_normlab)
        )
    return ", ".join(f"{file.name} {sha256(file)[:10]}" for file in files)


def _source(path: Path, target: str) -> Path:
    """Return the file that defines a class that the option in `path` names.

    Raises UserError if there is no such file.
    """
    try:
        return source_of(target)
    except Exception as error:  # the user's package may raise anything
        raise UserError(f"{path}: {TARGET}: {target}: {error}") from error


def followed_by(codes: Sequence[Code], code: Code) -> list[Code]:
    """Return the run's versions of the code with `code` added, unless it is already the last."""
    return [*codes, *([code] if list(codes[-1:]) != [code] else [])]


def joint_code(codes: Sequence[Code]) -> MadeBy:
    """Return the numerics and own norms of a run, joining several versions in order of training.

    Runs of mixed code, such as numerics "1, then 2", pair only with runs of the same mix.
    """
    numerics = list(dict.fromkeys(code.numerics for code in codes))
    digests: dict[str, dict[str, None]] = {}
    for code in codes:
        for name, files in code.own_norms.items():
            digests.setdefault(name, {})[files] = None
    mixed = ", then ".join(map(str, numerics))
    return (
        numerics[0] if len(numerics) == 1 else mixed,
        {name: ", then ".join(files) for name, files in sorted(digests.items())},
    )


def origin(codes: Sequence[Code]) -> dict[str, Any]:
    """Return the `commit`, `dirty` and `commits` of a run's record, given its versions of the code.

    `commit` is the last version, which also tested the run, and `commits` lists all versions if
    there are several. The run is dirty if any version is, and not known to be clean if a version is
    unknown.
    """
    commits = list(dict.fromkeys(str(code.commit) for code in codes))
    states = {code.dirty for code in codes}
    dirty = True if True in states else None if None in states else False
    several = {"commits": commits} if len(commits) > 1 else {}
    return {"commit": codes[-1].commit, "dirty": dirty, **several}


def commit_text(commit: str, dirty: bool | None) -> str:
    """Return a commit as text, with ` with changes` added if the code differed from it."""
    return f"{commit}{' with changes' if dirty else ''}"


def same_code(a: MadeBy, b: MadeBy) -> bool:
    """Return whether two runs have the same numerics, and the same code for shared user norms."""
    return a[0] == b[0] and all(a[1][name] == b[1][name] for name in a[1].keys() & b[1].keys())
