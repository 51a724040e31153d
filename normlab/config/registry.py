"""The config folder as a registry of options.

A folder below `configs/` is a group, and a YAML file in it is an option. The user's own folders add
options to these groups. Listing needs neither torch nor Hydra. A node in a run's config has the
name and the values of an option, and `node_settings` looks up the settings in the option's file,
which name the class. `comments.py` reads the description of an option.

Some keys of a file describe the option and are not settings (`ABOUT`):

_title_: layer norm            its name in tables for papers; by default the name of the file
_pools_over_: feature          the axes over which a norm pools, for the list of norms
_norms_: none, or required     the norms that a placement accepts; by default any
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from normlab.config.comments import description_in
from normlab.config.folders import PATH, folders
from normlab.config.schema import leaves
from normlab.config.suggestions import squeezed
from normlab.errors import UserError

OPTION, TARGET = "option", "_target_"
"""The keys of a node for its option (in a run's config) and its class (in the option's file)."""
START_FILE = "checkpoints/last.pt"
"""The file in a run's folder from which another run can start."""

ABOUT = ("_title_", "_pools_over_", "_norms_")
"""Keys of an option's file that are not settings."""
NORM_WORDS = dict(layer="ln", batch="bn", group="gn", instance="in", rms="rms", power="pn")
"""The options that aliases of norms stand for."""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Option:
    """An option and its file, which is read only when something about the option is needed."""

    name: str
    path: Path

    @property
    def description(self) -> str:
        """The sentence that describes the option in lists."""
        return description_in(self.path).summary

    @property
    def details(self) -> str:
        """The whole description of the option."""
        return description_in(self.path).details

    @property
    def title(self) -> str:
        """The name in tables for papers, such as `Layer norm`."""
        return str(_content_of(self.path).get("_title_", self.name))

    @property
    def pools_over(self) -> str:
        """The axes over which a norm pools, such as `batch and position`, or "" if unknown."""
        return str(_content_of(self.path).get("_pools_over_", ""))

    @property
    def norms(self) -> str:
        """The norms that a placement accepts: "none", "required" (any but none) or "any"."""
        return str(_content_of(self.path).get("_norms_", "any"))


def paths(group: str, first: Path | None = None) -> dict[str, Path]:
    """Return the file of each option of a group, by name, or {} for an unknown group.

    `first` is searched instead of `configs/` (see `folders`). Raises UserError for an option that
    is in two folders.
    """
    by_name: dict[str, Path] = {}
    for path in (path for root in folders(first) for path in (root / group).glob("*.yaml")):
        if (other := by_name.setdefault(path.stem, path)) != path:
            raise UserError(_twice(group, other, path))
    return dict(sorted(by_name.items()))


def path_of(group: str, name: str) -> Path | None:
    """Return the file of an option, or None if there is none. The group is not listed.

    Raises UserError for an option that is in two folders.
    """
    files = [root / group / f"{name}.yaml" for root in folders()]
    files = [file for file in files if file.stem == name and file.is_file()]  # a name is not a path
    if len(files) > 1:
        raise UserError(_twice(group, *files))
    return files[0] if files else None


def _twice(group: str, one: Path, other: Path, *_: Path) -> str:
    return f"{group}={one.stem} is in {one} and in {other}; rename one of them"


def option_names(group: str) -> list[str]:
    """Return the names of a group's options without opening files, or [] for an unknown group."""
    return list(paths(group))


def norm_name(name: str) -> str:
    """Return the option that a norm's name stands for, such as `bn` for `BatchNorm`.

    Other names are returned unchanged.
    """
    word = squeezed(name)
    return NORM_WORDS.get(word.removesuffix("norm"), name) if word.endswith("norm") else name


def options(group: str, first: Path | None = None) -> list[Option]:
    """Return the options of a group (see `paths`), or [] for an unknown group."""
    return [Option(name, path) for name, path in paths(group, first).items()]


def option_of(group: str, name: str) -> Option | None:
    """Return an option, or None if it does not exist here."""
    path = path_of(group, name)
    return None if path is None else Option(name, path)


def option_title(group: str, name: str) -> str:
    """Return the title of an option, or its name if it does not exist here."""
    option = option_of(group, name)
    return name if option is None else option.title


def options_with(group: str) -> dict[str, list[str]]:
    """Return, for each dotted key, the options of a group that set it."""
    names: dict[str, list[str]] = {}
    for path in paths(group).values():
        for key, value in leaves(_settings(path, group)):
            if key != "defaults" and not key.endswith(TARGET) and "${" not in str(value):
                names.setdefault(key, []).append(path.stem)
    return names


def option_settings(group: str, name: object, key: str) -> Mapping[str, Any]:
    """Return the content of an option's file. If it does not exist, raise UserError with `key`."""
    if (path := path_of(group, str(name))) is None:
        known = ", ".join(option_names(group))
        problem = f"{key}.{OPTION}={name!r:.60} does not exist here; choose from {known}"
        raise UserError(f"{problem}. If it is your own, set {PATH} to the folder that contains it")
    return _settings(path, group)


def default_choice(group: str, name: str, subgroup: str) -> str | None:
    """Return the default option of an option's subgroup, such as `corpus`, or None without one."""
    path = path_of(group, name)
    defaults = [] if path is None else _content_of(path).get("defaults", [])
    chosen = [each[subgroup] for each in defaults if isinstance(each, Mapping) and subgroup in each]
    return next(iter(chosen), None)


def _settings(path: Path, group: str) -> Mapping[str, Any]:
    """Return an option's content, with the values it inherits from other options of its group."""
    content = read_option(path)
    settings: dict[str, Any] = {}
    for name in content.get("defaults", []):
        if isinstance(name, str) and name != "_self_":
            settings |= option_settings(group, name, f"{path}: defaults")
    return settings | {name: value for name, value in content.items() if name != "defaults"}


def read_option(path: Path) -> Mapping[str, Any]:
    """Return the settings in an option's file, without the keys that only describe the option."""
    return {name: value for name, value in _content_of(path).items() if name not in ABOUT}


def _content_of(path: Path) -> Mapping[str, Any]:
    changed = path.stat()
    return _content(path, changed.st_mtime_ns, changed.st_size)


@lru_cache(maxsize=512)
def _content(path: Path, mtime: int, size: int) -> Mapping[str, Any]:
    """Read an option's file. It is read again after each edit."""
    from normlab.config.yaml_files import read_yaml12  # not every command needs YAML

    content = read_yaml12(path)
    if not isinstance(content, dict | None):
        raise UserError(f"{path} is not a mapping; write one `key: value` per line")
    for key in content or {}:
        if not isinstance(key, str):
            raise UserError(f"{path}: {key}: a key must be a word")
    return content or {}


def node_settings(node: object, key: str) -> Mapping[str, Any]:
    """Return the content of the file of a node's option, which names the class.

    `key` is the node's path in a run's config, such as `encoder_norm` or `observe.probe.tid`. Raise
    UserError if the node does not name an option that exists.
    """
    if not isinstance(node, Mapping):
        raise UserError(f"{key}={node!r:.60} must be a mapping with the key `option`")
    if TARGET in node:  # the content of an option's file, or a node made by a program
        return node
    first, *rest = key.split(".")
    if first == "observe":  # a probe or sink is named by its key
        return option_settings(rest[0], rest[-1], key)
    group = "norm" if first == "sites" or first.endswith("_norm") else key.replace(".", "/")
    if node.get(OPTION) is None:
        raise UserError(
            f"{key} has no `{OPTION}`, because the file of its option names no class; add the line "
            f"`{TARGET}: module.Class` to it"
        )
    return option_settings(group, node.get(OPTION), key)


def with_option_names(
    node: Mapping[str, Any], key: str, choices: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a node composed by Hydra, with the name of the option in place of each class.

    `choices` has the chosen option of each group, such as `task/corpus`.
    """
    inner = {
        name: with_option_names(each, f"{key}.{name}", choices)
        if isinstance(each, Mapping)
        else each
        for name, each in node.items()
        if name != TARGET
    }
    option = choices.get(key.replace(".", "/")) if TARGET in node else None
    return inner if option is None else {OPTION: option, **inner}
