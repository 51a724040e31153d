"""The folders with options: normlab's `configs/`, and the user's own.

Folders in the environment variable `NORMLAB_PATH`, and folders of installed packages with entry
points in the group `normlab.options`, add options to the groups of `configs/`. The modules of their
classes are in the same folders. Nothing here imports torch or Hydra.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from normlab.errors import UserError

_PACKAGE = Path(__file__).resolve().parents[1]
# An installed wheel has the folder inside the package, a checkout at its root.
INSTALLED = (_PACKAGE / "configs").is_dir()
CONFIG_DIR = (_PACKAGE if INSTALLED else _PACKAGE.parent) / "configs"
RESULTS = CONFIG_DIR.parent / "results"
"""normlab's own results, which are only read. An installed wheel has only the ledger of claims."""
PUBLISH_TO = Path("results") if INSTALLED else RESULTS
"""Where studies and report cards are published: in a wheel, `results` in the current folder."""
PATH, INCLUDE = "NORMLAB_PATH", "include"
"""The environment variable with the user's folders of options, and the key that adds a folder."""
_CONFIG_DIR, _SEARCH_PATH = ("--config-dir", "-cd"), "hydra.searchpath"


def groups() -> list[str]:
    """Return the groups: folders with a YAML file, as paths such as `norm` or `task/corpus`."""
    folders = {path.parent for path in CONFIG_DIR.rglob("*.yaml")} - {CONFIG_DIR}
    return sorted(folder.relative_to(CONFIG_DIR).as_posix() for folder in folders)


def folders(first: Path | None = None) -> list[Path]:
    """Return the folders with options: normlab's configs (or `first`), then the user's own.

    Raises UserError for a folder that does not exist.
    """
    return [*dict.fromkeys([first or CONFIG_DIR, *_own_folders(os.environ.get(PATH, ""))])]


def add_to_import_path() -> None:
    """Append the folders in `NORMLAB_PATH` to `sys.path`, so that their modules can be imported.

    Call this before a class of an option is looked up or imported. Installed packages with options
    are on the path already.
    """
    listed = map(str, _listed_folders(os.environ.get(PATH, "")))
    sys.path += [folder for folder in listed if folder not in sys.path]


def _listed_folders(listed: str) -> list[Path]:
    """Return the folders in a value of `NORMLAB_PATH`."""
    return [Path(text).expanduser().resolve() for text in listed.split(os.pathsep) if text]


@lru_cache(maxsize=8)
def _own_folders(listed: str) -> tuple[Path, ...]:
    sources = dict.fromkeys(_listed_folders(listed), PATH)
    for name, package, below in _packages():
        sources.setdefault(Path(package, *below).resolve(), f"the entry point {name}")
    for folder, source in sources.items():
        if not folder.is_dir():
            raise UserError(f"{source}: {folder} is not a folder")
    return tuple(sources)


@lru_cache(maxsize=1)
def _packages() -> list[tuple[str, Path, list[str]]]:
    """Return the entry point, folder and inner path of each installed package with options."""
    from importlib.metadata import entry_points  # 20 ms, which most commands need not take

    packages: list[tuple[str, Path, list[str]]] = []
    for entry in entry_points(group="normlab.options"):
        package, *below = entry.value.split(".")
        spec = find_spec(package)  # finds a package at the top without importing it
        for root in (spec and spec.submodule_search_locations) or [package]:
            packages.append((entry.name, Path(root).resolve(), below))
    return packages


def include_folders(arguments: Sequence[str]) -> list[str]:
    """Add the folders that arguments name to `NORMLAB_PATH`, and return the other arguments.

    `NORMLAB_PATH` is set for this process and its child processes. `_named_folders` says how a
    folder is named. Raises UserError for a folder that does not exist or has no options.
    """
    rest, included_folders = _named_folders(arguments)
    for typed, name in included_folders:
        folder = Path(name).expanduser().resolve()
        if not name or not folder.is_dir():
            raise UserError(f"{typed}{name} is not a folder")
        if not any(path for group in groups() for path in (folder / group).glob("*.yaml")):
            raise UserError(f"{typed}{name} has no options, such as norm/mine.yaml")
        before = os.environ.get(PATH, "").split(os.pathsep)
        os.environ[PATH] = os.pathsep.join(dict.fromkeys(filter(None, [*before, str(folder)])))
    return rest


def _named_folders(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Separate the arguments that name folders of options from the other arguments.

    Returns the other arguments, and each folder with the text before it, for error messages.
    A folder is named by `include=FOLDER` or, as in Hydra, by `--config-dir FOLDER` and
    `hydra.searchpath=[file://FOLDER,pkg://PACKAGE]`.
    """
    rest: list[str] = []
    folders_named: list[tuple[str, str]] = []
    words = iter(arguments)
    for text in words:
        key, equals, value = text.partition("=")
        if key in _CONFIG_DIR:
            folders_named.append((f"{key} ", value if equals else next(words, "")))
        elif equals and key.lstrip("+") == _SEARCH_PATH:
            places = value.strip("[]'\"").split(",")
            folders_named += [(f"{key}=", _place(place.strip(" '\""))) for place in places]
        elif equals and key == INCLUDE:
            folders_named += [(text[: len(INCLUDE) + 1], name) for name in value.split(os.pathsep)]
        else:
            rest.append(text)
    return rest, folders_named


def _place(place: str) -> str:
    """Return the folder that an entry of Hydra's search path stands for."""
    if not place.startswith("pkg://"):
        return place.removeprefix("file://")
    package, *below = place.removeprefix("pkg://").split(".")
    spec = find_spec(package) if package else None
    for root in (spec and spec.submodule_search_locations) or []:
        return str(Path(root, *below))
    raise UserError(f"{_SEARCH_PATH}={place}: the package {package!r} is not installed")


def include_words() -> list[str]:
    """Return the `include=FOLDER` argument with which another command finds the same folders."""
    return [f"{INCLUDE}={os.environ[PATH]}"] if os.environ.get(PATH) else []


def of_your_own() -> str:
    """Return a hint for a message about an unknown option, or "" if the user's folders are set."""
    return "" if folders()[1:] else " For one of your own, add include=FOLDER."


def own_line(error: BaseException) -> str:
    """Return the file and line in the user's code that raised an error, or "" for other code."""
    places = [*folders()[1:], *(package for _, package, _ in _packages())]
    for call in reversed(traceback.extract_tb(error.__traceback__)):
        if any(Path(call.filename).resolve().is_relative_to(folder) for folder in places):
            return f"{call.filename}, line {call.lineno}"
    return ""


def source_of(target: str) -> Path:
    """Return the file that defines a class, given its dotted name, such as `mine.MineNorm`.

    The user's folders must be on the import path (`add_to_import_path`). Raise UserError if there
    is no such module, or if another module of the same name hides the user's.
    """
    module = target.rpartition(".")[0]
    if not module:
        raise UserError(f"{target!r} must be a module and a class, such as mine.MineNorm")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise UserError(f"the module {module!r} does not exist")
    file = Path(spec.origin).resolve()
    mine = [folder / f"{module.replace('.', '/')}.py" for folder in folders()[1:]]
    hidden = [path for path in mine if path.is_file() and path.resolve() != file]
    if hidden and not module.startswith("normlab."):
        raise UserError(f"{file} hides {hidden[0]}; rename your module")
    return file
