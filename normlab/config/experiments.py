"""Experiments: files with the settings of a run, in `configs/experiment` or written by a user.

They are Hydra configs: a defaults list with `override /norm: bn`, then values. An experiment is
chosen by its name, or by its file (`my.yaml`), which may be anywhere. Nothing here imports torch or
Hydra.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from normlab.config.folders import INCLUDE, groups
from normlab.config.registry import paths, read_option
from normlab.config.schema import PARTS, PATHS, SHORT, full_key, key_of, leaves
from normlab.config.yaml_files import read_yaml
from normlab.errors import UserError

EXPERIMENT = "experiment"
SEVERAL = ("probe", "sink", EXPERIMENT)
"""The groups from which a run takes several options."""
_OVERRIDE = "override /norm: bn"  # an example


def is_file(text: str) -> bool:
    """Return whether an argument is the name of a file of settings."""
    return "=" not in text and text.endswith((".yaml", ".yml"))


def names_in(value: Any) -> list[str]:
    """Return the experiments in the value of `experiment=`: names, and paths of files."""
    names = value if isinstance(value, list) else [value]
    return [str(name) for name in names if name not in ("", None)]


def chosen_file(text: str) -> str:
    """Return the absolute path of a file of settings. Raise UserError if it is not such a file."""
    path = Path(text)
    if not path.is_file():
        raise UserError(
            f"{path} {'is a folder, not a file' if path.is_dir() else 'does not exist'}"
        )
    settings_in(path, read_option(path))
    return str(path.absolute())


def settings_in(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of an experiment, with text exactly as written.

    YAML itself would read `name: 1.10` as a number and drop its last digit. Raise UserError if the
    file is not an experiment.
    """
    if not content:
        raise UserError(
            f"{path} has no settings; write one `key: value` per line, as in configs/{EXPERIMENT}"
        )
    if "choices" in content:
        raise UserError(f"{path} is the config of a whole run, not the settings of an experiment")
    if INCLUDE in content:
        raise UserError(
            f"{path} sets {INCLUDE}, but a file cannot choose code to run; pass {INCLUDE}=FOLDER "
            "on the command line"
        )
    _check_defaults(path, content.get("defaults", []))
    for key, value in content.items():
        if (key in groups() or key.startswith("norm@")) and not isinstance(value, Mapping):
            raise UserError(
                f"{path}: instead of {key}: {value}, write - override /{key}: {value} in defaults"
            )
        if key in PARTS and not isinstance(value, Mapping):
            raise UserError(f"{path}: {key}: {value} must have keys of its own, one per line")
        if "." in key:
            advice = f"write {': {'.join(key.split('.'))}: {value}{'}' * key.count('.')}"
            raise UserError(f"{path}: {key}: {value}: {advice}")
    keys = dict(leaves(content))
    if twice := [
        f"{key} and {full}" for key, full in SHORT.items() if key in keys and full in keys
    ]:
        raise UserError(f"{path}: {twice[0]} are the same key; keep one")
    return _texts(content, read_yaml(path, as_text=True), "")


def _check_defaults(path: Path, entries: Any) -> None:
    """Raise UserError unless `defaults` is a list of other experiments and of one option per group.

    From a group in `SEVERAL`, it may choose a list of options.
    """
    if not isinstance(entries, list):
        raise UserError(f"{path}: defaults: {entries} must be a list with `- {_OVERRIDE}`")
    for entry in entries:
        if isinstance(entry, str):
            continue
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise UserError(f"{path}: defaults: {entry} must look like `- {_OVERRIDE}`")
        [(group, options)] = entry.items()
        name = str(group).split()[-1].strip("/").partition("@")[0]
        several = options if isinstance(options, list) and name in SEVERAL else [options]
        if not all(isinstance(option, str | None) for option in several):
            raise UserError(f"{path}: defaults: {group}: {options} must be the name of one option")


def _texts(content: Mapping[str, Any], text: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the content, with the exact text of the file as the value of each text key."""
    settings: dict[str, Any] = {}
    for name, value in content.items():
        key, written = f"{prefix}{name}", text[str(name)]
        limits = key_of(full_key(key)).range
        if isinstance(value, Mapping):
            settings[name] = _texts(value, written, f"{key}.")
        elif value is None or limits is None or not (limits.is_text or limits.is_list_of_texts):
            settings[name] = value
        else:
            is_one = limits.is_list_of_texts and isinstance(written, str)
            if key in PATHS and isinstance(written, str):
                written = os.path.expanduser(written)
            settings[name] = [written] if is_one else written
    return settings


def values_of(names: Sequence[str]) -> dict[str, Any]:
    """Return the values that experiments set or inherit, by dotted key.

    The keys are in the order in which they are set last.
    """
    settings: dict[str, Any] = {}
    for _, content in chain.from_iterable(map(_with_bases, names)):
        for key, value in _settings(content):
            settings.pop(key, None)
            settings[key] = value
    return settings


def files_of(names: Sequence[str]) -> dict[str, Path]:
    """Return the file of the experiment that sets each full key or group last."""
    files: dict[str, Path] = {}
    for path, content in chain.from_iterable(map(_with_bases, names)):
        chosen = [each for each in content.get("defaults", []) if isinstance(each, Mapping)]
        groups_set = [str(x).removeprefix("override").strip(" /") for each in chosen for x in each]
        keys_set = [full_key(key) for key, _ in _settings(content)]
        files |= dict.fromkeys([*groups_set, *keys_set], path)
    return files


def _with_bases(name: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the file and content of each experiment that this one inherits from, then its own."""
    path = paths(EXPERIMENT).get(name, Path(name))
    content = read_option(path)
    for base in content.get("defaults", []):
        if isinstance(base, str) and base != "_self_" and base in paths(EXPERIMENT):
            yield from _with_bases(base)
    yield path, content


def _settings(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return leaves({key: value for key, value in content.items() if key != "defaults"})
