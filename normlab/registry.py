"""The config folder as a registry: its groups, options and keys.

A folder below `configs/` is a group, a YAML file in it an option, and the comment that opens the
file its description. Read as plain text, without torch or hydra, so that lists
answer at once.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent
# An installed wheel carries the folder inside the package; in a checkout it is at the root.
_INSTALLED = _PACKAGE / "configs"
CONFIG_DIR = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "configs"

_COMMAND = re.compile(r"^[`$ ]*(normlab|torchrun|python|bash)\s")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_OF_HYDRA = ("defaults", "hydra")
# Folders of what runs are compared by: no choice of a run.
_NO_CHOICE = ("claim", "study")


@dataclass(frozen=True)
class Option:
    """One choice of a group: its name on the command line, its file, and what that says it is.

    `command` is the command that the file opens with, or "" where it gives none; `description` is
    the first sentence after it, `details` all of the comment.
    """

    group: str
    name: str
    path: Path
    command: str
    description: str
    details: str


def groups(root: Path = CONFIG_DIR) -> list[str]:
    """List the groups: the folders with a YAML file, as paths such as `norm` or `hydra/sweeper`."""
    folders = {path.parent for path in root.rglob("*.yaml")} - {root}
    return sorted(folder.relative_to(root).as_posix() for folder in folders)


def run_groups(root: Path = CONFIG_DIR) -> list[str]:
    """List the groups that a run chooses from: all but studies and claims."""
    return [group for group in groups(root) if group not in _NO_CHOICE]


def sites(root: Path = CONFIG_DIR) -> list[str]:
    """List the places that a group can fill a second time, such as `norm@decoder_norm`.

    They are the entries with an `@` of the defaults list of the files at the root of the folder.
    """
    entries = [entry for node in _root_files(root) for entry in node.get("defaults", [])]
    keys = [str(key) for entry in entries if isinstance(entry, dict) for key in entry]
    named = [key.removeprefix("override ").removeprefix("optional ").strip("/") for key in keys]
    return sorted({name for name in named if "@" in name})


def option_names(group: str, root: Path = CONFIG_DIR) -> list[str]:
    """List the names of a group's options without opening their files; empty for no such group."""
    return sorted(path.stem for path in (root / group).glob("*.yaml"))


def options(group: str, root: Path = CONFIG_DIR) -> list[Option]:
    """List the options of a group; raises `ValueError` naming the groups there are."""
    found = [_read(path, group) for path in sorted((root / group).glob("*.yaml"))]
    if not found:
        raise ValueError(f"no config group {group!r} in {root}; allowed: {', '.join(groups(root))}")
    return found


def top_level_keys(root: Path = CONFIG_DIR) -> list[str]:
    """List the dotted keys of the YAML files at the root of the folder, such as `budget.steps`."""
    nodes = _root_files(root)
    found = {leaf for node in nodes for key in node for leaf in _leaves(node[key], str(key))}
    return sorted(key for key in found if key.split(".")[0] not in _OF_HYDRA)


def option_keys(group: str, root: Path = CONFIG_DIR) -> list[str]:
    """List the dotted keys that the options of a group have, without those taken from others."""
    return list(options_with(group, root))


def options_with(group: str, root: Path = CONFIG_DIR) -> dict[str, list[str]]:
    """Return by key of `option_keys` the names of the options whose own files have it."""
    import yaml

    found: dict[str, list[str]] = {}
    for path in sorted((root / group).glob("*.yaml")):
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
        for key, value in (node or {}).items():
            if not (key.startswith("_") or key == "defaults"):
                for leaf in _leaves(value, str(key)):
                    if "_target_" not in leaf:
                        found.setdefault(leaf, []).append(path.stem)
    return found


def _root_files(root: Path) -> list[dict[str, Any]]:
    import yaml  # a folder is listed faster without it

    nodes = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in root.glob("*.yaml")]
    return [node for node in nodes if isinstance(node, dict)]


def _read(path: Path, group: str) -> Option:
    lines = _header(path)
    commands = [line for line in lines if _COMMAND.match(line)]
    prose = [line for line in lines if not _COMMAND.match(line)]
    details = "\n".join(prose).strip()
    paragraph = details.split("\n\n")[0].replace("\n", " ")
    return Option(
        group=group,
        name=path.stem,
        path=path,
        command=commands[0].strip("`$ ") if commands else "",
        description=_SENTENCE_END.split(paragraph)[0],
        details=details,
    )


def _header(path: Path) -> list[str]:
    """Read the comment at the top of a file, without the `#` and without Hydra's directives."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("#").strip()
        if not text.startswith("@package"):
            lines.append(text)
    return lines


def _leaves(node: object, prefix: str) -> Iterator[str]:
    """Yield the dotted keys of a node, but for those whose values are taken from elsewhere."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{prefix}.{key}")
    elif "${" not in str(node):
        yield prefix
